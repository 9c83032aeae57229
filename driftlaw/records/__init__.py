"""Run records: the JSON Lines file that a run writes, resumes from and is reported from. Never imports torch."""

from driftlaw.records.compress import compress_record
from driftlaw.records.jsonl import dump_line, read_lines
from driftlaw.records.metrics import (
    CleanError,
    LayerDrift,
    Recovery,
    Window,
    calibration_by_domain,
    calibration_error,
    clean_error,
    error_by_round,
    layer_drift,
    mean_recovery,
    recoveries,
    worst_window,
)
from driftlaw.records.run_record import RunRecord, Segment, find_records, read_record
from driftlaw.records.validation import validate_record
from driftlaw.records.writer import RecordWriter

__all__ = [
    "CleanError",
    "LayerDrift",
    "RecordWriter",
    "Recovery",
    "RunRecord",
    "Segment",
    "Window",
    "calibration_by_domain",
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
