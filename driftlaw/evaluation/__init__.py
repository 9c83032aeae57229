"""Evaluation of an adapter on a labelled stream: runs it, computes metrics and writes a resumable record."""

from driftlaw.evaluation.evaluator import run
from driftlaw.evaluation.metrics import METRICS, diagnostics_to_json

__all__ = ["METRICS", "diagnostics_to_json", "run"]
