"""The paper's tables and figures as cells: planned, run, skipped where their record is there."""

from driftlaw.experiments.cells import Cell, parse_seeds, plan_run
from driftlaw.experiments.plans import EXPERIMENTS, Experiment, plan_experiment
from driftlaw.experiments.workbench import Workbench

__all__ = ["EXPERIMENTS", "Cell", "Experiment", "Workbench", "parse_seeds", "plan_experiment", "plan_run"]
