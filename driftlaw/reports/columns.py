"""Optional columns of a report: calibration, forgetting, rounds, worst window, recovery, drift, agreement, cost."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from driftlaw.errors import UsageError, unknown_name
from driftlaw.records import RunRecord, metrics
from driftlaw.reports import format as fmt
from driftlaw.reports.result_table import ResultRow, ResultTable


@dataclass(frozen=True)
class MetricColumn:
    """A metric of a run that a table can show.

    Attributes:
        heading: Heading of the column.
        meaning: Description for the caption.
        requires: Argument of ``driftlaw run --metrics`` that records it; empty if every record contains it.
    """

    heading: str
    meaning: str
    requires: str = ""


COLUMNS = {name: MetricColumn(**labels) for name, labels in fmt.LABELS["columns"].items()}
COLUMN_FOR_METRIC = {column.requires: name for name, column in COLUMNS.items() if column.requires}
"""Name of the column that shows a recorded metric."""


def _mean_percent(rows: list[list[float]]) -> float | None:
    return 100.0 * fmean(value for row in rows for value in row) if rows else None


_VALUES: dict[str, Callable[[RunRecord], float | None]] = {
    "error": lambda record: record.mean_error,
    "miou": lambda record: record.mean_iou,
    "ece": metrics.calibration_error,
    "clean": lambda record: clean.after if (clean := metrics.clean_error(record)) else None,
    "first_round": lambda record: errors[0] if len(errors := metrics.error_by_round(record)) > 1 else None,
    "last_round": lambda record: errors[-1] if len(errors := metrics.error_by_round(record)) > 1 else None,
    "worst": lambda record: window.error if (window := metrics.worst_window(record)) else None,
    "recovery": metrics.mean_recovery,
    "drift": lambda record: 100.0 * drift.mean if (drift := metrics.layer_drift(record)) else None,
    "agreement": lambda record: _mean_percent(record.diagnostics("source_agreement")),
    "ms": lambda record: None if record.shared_gpu else 1000.0 * record.seconds_per_step,
    "flops": lambda record: record.cost.get("step_flops_per_image"),
}


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


def measured_columns(records: Iterable[RunRecord]) -> tuple[str, ...]:
    """Return the columns of the metrics that were measured in addition to error and cost, in the order of a table."""
    measured = {name for record in records for name in record.metrics}
    return tuple(column for name, column in COLUMN_FOR_METRIC.items() if name in measured)


def column_values(row: ResultRow, name: str) -> list[float]:
    """Return the known values of a column, one per run; unfinished runs have costs only."""
    if not row.finished and name not in ("ms", "flops"):
        return []
    values = [_VALUES[name](record) for record in row.records if record.batches]
    return [value for value in values if value is not None]


def column_text(row: ResultRow, name: str) -> str:
    """Return a value as text: mean and standard deviation over seeds, or the cost as in the cost table."""
    if name == "ms":
        return fmt.milliseconds_text(row.cost.seconds)
    if name == "flops":
        return fmt.flops_text(row.cost.step_flops)
    values = column_values(row, name)
    if not values:
        return fmt.MISSING
    if not math.isfinite(fmean(values)):
        return "∞"
    text = fmt.error_text(fmean(values)) + fmt.spread_text(stdev(values) if len(values) > 1 else None)
    if name == "clean":
        forgotten = fmean(
            clean.forgotten for record in row.records if (clean := metrics.clean_error(record)) is not None
        )
        return f"{text} ({fmt.difference_text(forgotten)})"
    if name == "recovery" and any(
        item.batches is None for record in row.records for item in metrics.recoveries(record)
    ):
        return f"≥ {text}"
    return text


def column_data(row: ResultRow, name: str) -> dict[str, float | None]:
    """Return mean and standard deviation over seeds; None if unknown or infinite."""
    values = column_values(row, name)
    if not values or not math.isfinite(fmean(values)):
        return {"mean": None, "std": None}
    return {"mean": round(fmean(values), 4), "std": round(stdev(values), 4) if len(values) > 1 else None}


def iou_means(row: ResultRow) -> dict[str, dict[str, float]]:
    """Return mean IoU by domain and IoU by class in per cent, averaged over seeds; empty without label maps."""
    runs = [summary for record in row.records if record.finished and (summary := record.iou_summary())]
    means: dict[str, dict[str, float]] = {}
    for key in ("mean_iou_by_domain", "iou_by_class") if runs else ():
        names = dict.fromkeys(name for run in runs for name in run[key])
        means[key] = {name: round(fmean(run[key][name] for run in runs if name in run[key]), 4) for name in names}
    return means


def describe_columns(table: ResultTable, names: Sequence[str]) -> str:
    """Return the caption of optional columns: their meaning, the largest drift, and what was not recorded."""
    if not names:
        return ""
    sentences = ["; ".join(f"{COLUMNS[name].heading}: {COLUMNS[name].meaning}" for name in names) + "."]
    finished = [row for row in table.rows if row.finished]
    for row in finished if "drift" in names else ():
        if drift := metrics.layer_drift(row.first):
            largest = [f"{name} {100.0 * distance:.1f} %" for name, distance in drift.farthest()]
            sentences.append(f"Largest drift, {row.label}: {fmt.listed(largest)}.")
    for column, name in ((COLUMNS[name], name) for name in names):
        if column.requires and (missing := sum(not column_values(row, name) for row in finished)):
            heading = column.heading.partition(",")[0]
            sentences.append(f"{fmt.counted(missing, 'row')} without {heading}: run with --metrics {column.requires}.")
    return " ".join(sentences)
