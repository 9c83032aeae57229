"""Whether a record can be believed: its fields are there, and its closing line fits its batches."""

from __future__ import annotations

from typing import Any

from driftlaw.errors import DataError
from driftlaw.records import RunRecord

_HEADER_FIELDS = (
    *("driftlaw", "device", "seed", "method", "settings", "reset_on", "batches", "model.name"),
    *("stream.dataset.name", "stream.schedule"),
)
_BATCH_FIELDS = (
    *("batch", "segment", "domain.name", "domain.severity", "domain.round", "images", "wrong", "facts"),
    "timing.seconds",
)


def place(record: RunRecord) -> str:
    """Return where a record lies, for messages."""
    return record.path.as_posix() if record.path else "a run in memory"


def sound(record: RunRecord) -> RunRecord:
    """Return the record if its fields are there and its closing line fits its batches."""
    problems = [f"its header has no «{field}»" for field in _HEADER_FIELDS if not _has(record.header, field)]
    for number, line in enumerate(record.batches):
        problems += [f"batch {number} has no «{field}»" for field in _BATCH_FIELDS if not _has(line, field)]
        if not problems and line["images"] < 1:
            problems.append(f"batch {number} holds no images")
    if not problems and record.closing is not None:
        problems = _closing_problems(record)
    if problems:
        more = f" (and {len(problems) - 3} problems more)" if len(problems) > 3 else ""
        raise DataError(
            f"the record {place(record)} is damaged: {'; '.join(problems[:3])}{more}. Delete it and run again"
        )
    return record


def _has(line: Any, field: str) -> bool:
    """Whether a line holds a field, named with dots where it lies deeper."""
    for name in field.split("."):
        if not isinstance(line, dict) or name not in line:
            return False
        line = line[name]
    return True


def _closing_problems(record: RunRecord) -> list[str]:
    if len(record.batches) != record.header["batches"] or not record.batches:
        return [f"it is closed after {len(record.batches)} of {record.header['batches']} batches"]
    told = (record.closing or {}).get("mean_error")
    if told is None or abs(told - record.mean_error) > 0.01:
        return [f"its closing line says a mean error of {told}, its batches make {record.mean_error:.4f}"]
    return []
