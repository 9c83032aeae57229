"""Experiments: the paper's tables and figures as lists of runs and their execution."""

from driftlaw._deprecated import add_old_names
from driftlaw.experiments.context import RunContext, RunOptions
from driftlaw.experiments.paper import EXPERIMENTS, Experiment, plan_experiment
from driftlaw.experiments.run_spec import RunSpec, parse_seeds, plan_run

__all__ = [
    "EXPERIMENTS",
    "Experiment",
    "RunContext",
    "RunOptions",
    "RunSpec",
    "parse_seeds",
    "plan_experiment",
    "plan_run",
]

add_old_names(__name__)
