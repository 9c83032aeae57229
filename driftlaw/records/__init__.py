"""Run records: the JSON Lines file that a run writes, resumes from and is reported from. Never imports torch."""

from driftlaw.records.jsonl import compress_record, dump_line, read_lines
from driftlaw.records.metrics import (
    calibration_error,
    clean_error,
    error_by_round,
    layer_drift,
    mean_recovery,
    recoveries,
    worst_window,
)
from driftlaw.records.read import find_records, read_record, validate_record
from driftlaw.records.run_record import RunRecord, Segment
from driftlaw.records.writer import RecordWriter

__all__ = [
    "RecordWriter",
    "RunRecord",
    "Segment",
    "calibration_error",
    "clean_error",
    "compress_record",
    "dump_line",
    "error_by_round",
    "find_records",
    "layer_drift",
    "mean_recovery",
    "read_lines",
    "read_record",
    "recoveries",
    "validate_record",
    "worst_window",
]
