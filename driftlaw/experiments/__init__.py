"""The paper's tables and figures as cells: planned, run, skipped where their record is there."""

from driftlaw.experiments.context import Workbench
from driftlaw.experiments.paper import EXPERIMENTS, Experiment, plan_experiment
from driftlaw.experiments.run_spec import Cell, parse_seeds, plan_run

__all__ = ["EXPERIMENTS", "Cell", "Experiment", "Workbench", "parse_seeds", "plan_experiment", "plan_run"]
