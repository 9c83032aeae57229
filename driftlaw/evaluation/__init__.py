"""Evaluation of an adapter on a labelled stream: runs it, computes metrics and writes a resumable record."""

from driftlaw.base.diagnostics import diagnostics_to_json
from driftlaw.evaluation.evaluator import run
from driftlaw.evaluation.metrics import METRICS
from driftlaw.evaluation.resume import RecordMismatchError

__all__ = ["METRICS", "RecordMismatchError", "diagnostics_to_json", "run"]
