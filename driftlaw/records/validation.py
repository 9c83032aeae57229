"""Validation of run records: required fields are present, and the closing line agrees with the batches."""

from __future__ import annotations

from typing import Any

from driftlaw.errors import DataError
from driftlaw.records.run_record import RunRecord

_HEADER_FIELDS = (
    *("driftlaw", "device", "seed", "method", "settings", "reset_on", "batches", "model.name"),
    *("stream.dataset.name", "stream.schedule"),
)
_BATCH_FIELDS = (
    *("batch", "segment", "domain.name", "domain.severity", "domain.round", "images", "wrong", "facts"),
    "timing.seconds",
)


def validate_record(record: RunRecord) -> RunRecord:
    """Return the record if it is complete and consistent.

    Raises:
        DataError: fields are missing, a batch is empty, or the closing line contradicts the batches.
    """
    problems = [f"the header has no '{field}'" for field in _HEADER_FIELDS if not _has(record.header, field)]
    for number, line in enumerate(record.batches):
        problems += [f"batch {number} has no '{field}'" for field in _BATCH_FIELDS if not _has(line, field)]
        if not problems and line["images"] < 1:
            problems.append(f"batch {number} has no images")
    if not problems and record.closing is not None:
        problems = _closing_problems(record, record.closing)
    if problems:
        more = f" (and {len(problems) - 3} more problems)" if len(problems) > 3 else ""
        raise DataError(
            f"The record {record.location} is damaged: {'; '.join(problems[:3])}{more}. Delete it and run again."
        )
    return record


def _has(line: Any, field: str) -> bool:
    """Return True if a line has a field; dots separate the keys of nested objects."""
    for name in field.split("."):
        if not isinstance(line, dict) or name not in line:
            return False
        line = line[name]
    return True


def _closing_problems(record: RunRecord, closing: dict[str, Any]) -> list[str]:
    if len(record.batches) != record.header["batches"] or not record.batches:
        return [f"it has a closing line after {len(record.batches)} of {record.header['batches']} batches"]
    recorded = closing.get("mean_error")
    if recorded is None or abs(recorded - record.mean_error) > 0.01:
        return [f"the closing line has a mean error of {recorded}, the batches have {record.mean_error:.4f}"]
    return []
