"""Optional columns of a report: calibration, forgetting, rounds, worst window, recovery, drift and cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from driftlaw.errors import UsageError, unknown_name
from driftlaw.records import (
    RunRecord,
    calibration_error,
    clean_error,
    error_by_round,
    layer_drift,
    mean_recovery,
    recoveries,
    worst_window,
)
from driftlaw.reports.format import (
    MISSING,
    counted,
    difference_text,
    error_text,
    flops_text,
    listed,
    milliseconds_text,
    spread_text,
)
from driftlaw.reports.result_table import ResultRow, ResultTable

_COSTS = ("ms", "flops")


@dataclass(frozen=True)
class MetricColumn:
    """A metric of a run that a table can show.

    Attributes:
        heading: Heading of the column.
        meaning: Description for the caption.
        value: Function from a run to its value; None if the record does not contain it.
        requires: Argument of ``driftlaw run --metrics`` that records it; empty if every record contains it.
    """

    heading: str
    meaning: str
    value: Callable[[RunRecord], float | None]
    requires: str = ""


def _round_error(record: RunRecord, index: int) -> float | None:
    errors = error_by_round(record)
    return errors[index] if len(errors) > 1 else None


COLUMNS: dict[str, MetricColumn] = {
    "error": MetricColumn("error, %", "mean online error", lambda record: record.mean_error),
    "ece": MetricColumn(
        "ECE, %", "expected calibration error over the stream, 15 bins of equal width", calibration_error, "calibration"
    ),
    "clean": MetricColumn(
        "clean, %",
        "error on clean images after the stream, predicted without updates; in brackets, the increase in percentage "
        "points since before the stream",
        lambda record: None if (clean := clean_error(record)) is None else clean.after,
        "forgetting",
    ),
    "first_round": MetricColumn(
        "first round, %", "error in the first round of a repeating stream", lambda record: _round_error(record, 0)
    ),
    "last_round": MetricColumn("last round, %", "error in its last round", lambda record: _round_error(record, -1)),
    "worst": MetricColumn(
        "worst 10, %",
        "highest error over 10 consecutive batches",
        lambda record: None if (window := worst_window(record)) is None else window.error,
    ),
    "recovery": MetricColumn(
        "recovery",
        "batches until the error of 3 batches is at most one percentage point above that of the second half of the "
        "domain, mean over domains; ≥ if a domain never gets there",
        mean_recovery,
    ),
    "drift": MetricColumn(
        "drift, %",
        "relative distance from the source model at the end, ‖θ − θ₀‖/‖θ₀‖, mean over trainable tensors",
        lambda record: None if (drift := layer_drift(record)) is None else 100.0 * drift.mean,
        "drift",
    ),
    "ms": MetricColumn(
        "ms/step",
        "median over steps",
        lambda record: None if record.shared_gpu else 1000.0 * record.seconds_per_step,
    ),
    "flops": MetricColumn(
        "FLOPs/image",
        "of a whole step, forward and backward",
        lambda record: record.cost.get("step_flops_per_image"),
    ),
}
COLUMN_FOR_METRIC = {column.requires: name for name, column in COLUMNS.items() if column.requires}
"""Name of the column that shows a recorded metric."""


def parse_columns(text: str | None) -> tuple[str, ...]:
    """Return the column names of a comma-separated list, without duplicates.

    >>> parse_columns("error, ece,error")
    ('error', 'ece')
    """
    names = tuple(dict.fromkeys(name.strip() for name in (text or "").split(",") if name.strip()))
    if text is not None and not names:
        raise UsageError(f"--columns {text!r} contains no name. Choose from {', '.join(COLUMNS)}.")
    for name in names:
        if name not in COLUMNS:
            raise unknown_name("column", name, list(COLUMNS))
    return names


def column_values(row: ResultRow, name: str) -> list[float]:
    """Return the known values of a column, one per run; unfinished runs have costs only."""
    if not row.finished and name not in _COSTS:
        return []
    values = [COLUMNS[name].value(record) for record in row.records if record.batches]
    return [value for value in values if value is not None]


def column_text(row: ResultRow, name: str) -> str:
    """Return a value as text: mean and standard deviation over seeds, or the cost as in the cost table."""
    if name == "ms":
        return milliseconds_text(row.cost.seconds)
    if name == "flops":
        return flops_text(row.cost.step_flops)
    values = column_values(row, name)
    if not values:
        return MISSING
    if not math.isfinite(fmean(values)):
        return "∞"
    text = error_text(fmean(values)) + spread_text(stdev(values) if len(values) > 1 else None)
    if name == "clean":
        forgotten = fmean(clean.forgotten for record in row.records if (clean := clean_error(record)) is not None)
        return f"{text} ({difference_text(forgotten)})"
    if name == "recovery" and any(item.batches is None for record in row.records for item in recoveries(record)):
        return f"≥ {text}"
    return text


def column_data(row: ResultRow, name: str) -> dict[str, float | None]:
    """Return mean and standard deviation over seeds; None if unknown or infinite."""
    values = column_values(row, name)
    mean = fmean(values) if values else math.nan
    return {
        "mean": round(mean, 4) if math.isfinite(mean) else None,
        "std": round(stdev(values), 4) if len(values) > 1 and math.isfinite(mean) else None,
    }


def describe_columns(table: ResultTable, names: Sequence[str]) -> str:
    """Return the caption of optional columns: their meaning, the largest drift, and what was not recorded."""
    if not names:
        return ""
    sentences = ["; ".join(f"{COLUMNS[name].heading}: {COLUMNS[name].meaning}" for name in names) + "."]
    for row in table.rows if "drift" in names else ():
        drift = layer_drift(row.first) if row.finished else None
        if drift:
            largest = [f"{name} {100.0 * distance:.1f} %" for name, distance in drift.farthest()]
            sentences.append(f"Largest drift, {row.label}: {listed(largest)}.")
    for name in names:
        column = COLUMNS[name]
        missing = sum(not column_values(row, name) for row in table.rows if row.finished) if column.requires else 0
        if missing:
            heading = column.heading.partition(",")[0]
            sentences.append(f"{counted(missing, 'row')} without {heading}: run with --metrics {column.requires}.")
    return " ".join(sentences)
