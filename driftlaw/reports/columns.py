"""Columns that can be asked for: calibration, forgetting, rounds, the worst window, time to recover, drift, costs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean, stdev

from driftlaw.errors import UsageError, unknown
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
from driftlaw.reports.cost import cost_of
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
from driftlaw.reports.tables import Row, Table

Figure = Callable[[RunRecord], float | None]


@dataclass(frozen=True)
class Column:
    """A figure of a run that a table can show.

    Attributes:
        heading: what stands over it.
        meaning: what it is, in a sentence for the line under the table.
        figure: the figure of one run; None where its record does not say.
        measure: what ``driftlaw run --measures`` must have been given for it; empty where every record has it.
    """

    heading: str
    meaning: str
    figure: Figure
    measure: str = ""


def _clean(record: RunRecord) -> float | None:
    found = clean_error(record)
    return None if found is None else found.after


def _worst(record: RunRecord) -> float | None:
    found = worst_window(record)
    return None if found is None else found.error


def _in_round(record: RunRecord, place: int) -> float | None:
    """Return the error in one round; None where the stream does not come round, and every round is the first."""
    errors = error_by_round(record)
    return errors[place] if len(errors) > 1 else None


def _drift(record: RunRecord) -> float | None:
    found = layer_drift(record)
    return None if found is None else 100.0 * found.mean


def _milliseconds(record: RunRecord) -> float | None:
    return None if record.shared_gpu else 1000.0 * record.seconds_per_step


COLUMNS: dict[str, Column] = {
    "error": Column("error, %", "mean online error", lambda record: record.mean_error),
    "ece": Column(
        "ECE, %",
        "expected calibration error over the stream, 15 bins of equal width",
        calibration_error,
        "calibration",
    ),
    "clean": Column(
        "clean, %",
        "error on clean images after the stream, answered without learning; in brackets, points more than before it",
        _clean,
        "forgetting",
    ),
    "first_round": Column(
        "first round, %", "error in the first round of a stream that comes round", lambda record: _in_round(record, 0)
    ),
    "last_round": Column("last round, %", "error in its last round", lambda record: _in_round(record, -1)),
    "worst": Column("worst 10, %", "the highest error over any 10 consecutive batches", _worst),
    "recovery": Column(
        "recovery",
        "batches until the error of 3 of them is at most a point above that of the domain's last half, mean over "
        "domains; ≥ where a domain never settles",
        mean_recovery,
    ),
    "drift": Column(
        "drift, %",
        "distance from the source over the norm of the source, ‖θ − θ₀‖/‖θ₀‖, at the end, mean over tensors that learn",
        _drift,
        "drift",
    ),
    "ms": Column("ms a step", "median over steps", _milliseconds),
    "flops": Column(
        "FLOPs an image",
        "of a whole step, forward and backward",
        lambda record: (record.closing or {}).get("cost", {}).get("step_flops_per_image"),
    ),
}
FOR_MEASURES = {column.measure: name for name, column in COLUMNS.items() if column.measure}
"""Which column shows what a run was told to measure."""


def parse_columns(text: str | None) -> tuple[str, ...]:
    """Return the columns that ``--columns`` names, each once.

    >>> parse_columns("error, ece,error")
    ('error', 'ece')
    """
    names = tuple(dict.fromkeys(name.strip() for name in (text or "").split(",") if name.strip()))
    if text is not None and not names:
        raise UsageError(f"--columns {text!r} names none: expected some of {', '.join(COLUMNS)}")
    for name in names:
        if name not in COLUMNS:
            raise unknown("column", name, list(COLUMNS))
    return names


def headings(table: Table) -> list[str]:
    """Return what stands over the columns that were asked for."""
    return [COLUMNS[name].heading for name in table.columns]


def figures(row: Row, name: str) -> list[float]:
    """Return one figure a run of the row, those that are known; an unfinished run has only costs."""
    if not row.finished and name not in ("ms", "flops"):
        return []
    found = [COLUMNS[name].figure(record) for record in row.records if record.batches]
    return [value for value in found if value is not None]


def cell_text(row: Row, name: str) -> str:
    """Return a cell: the mean over seeds and its spread; costs as the cost table tells them."""
    if name == "ms":
        return milliseconds_text(cost_of(row).seconds)
    if name == "flops":
        return flops_text(cost_of(row).step_flops)
    values = figures(row, name)
    if not values:
        return MISSING
    mean = fmean(values)
    if not math.isfinite(mean):
        return "∞"
    text = error_text(mean) + spread_text(stdev(values) if len(values) > 1 else None)
    if name == "clean":
        return f"{text} ({difference_text(_forgotten(row))})"
    return f"≥ {text}" if name == "recovery" and _never(row) else text


def cell_data(row: Row, name: str) -> dict[str, float | None]:
    """Return a cell as numbers: mean and standard deviation over seeds; None where there is none, or it is infinite."""
    values = figures(row, name)
    mean = fmean(values) if values else math.nan
    return {
        "mean": round(mean, 4) if math.isfinite(mean) else None,
        "std": round(stdev(values), 4) if len(values) > 1 and math.isfinite(mean) else None,
    }


def _forgotten(row: Row) -> float:
    found = [clean_error(record) for record in row.records]
    return fmean(clean.forgotten for clean in found if clean is not None)


def _never(row: Row) -> bool:
    return any(item.batches is None for record in row.records for item in recoveries(record))


def describe_columns(table: Table) -> str:
    """Return the line under the columns: what each of them means, what went farthest, and what was not measured."""
    told = [f"{COLUMNS[name].heading}: {COLUMNS[name].meaning}" for name in table.columns]
    sentences = ["; ".join(told) + "."] if told else []
    if "drift" in table.columns:
        sentences += [
            f"Farthest from the source, {row.label}: {_farthest(row)}." for row in table.rows if _farthest(row)
        ]
    sentences += _missing(table)
    return " ".join(sentences)


def _farthest(row: Row) -> str:
    found = layer_drift(row.first) if row.finished else None
    return listed([f"{name} {100.0 * distance:.1f} %" for name, distance in found.farthest()]) if found else ""


def _missing(table: Table) -> list[str]:
    """Say which runs must be run again, and how, for the dashes to become figures."""
    sentences = []
    for name in table.columns:
        measure = COLUMNS[name].measure
        lacking = sum(not figures(row, name) for row in table.rows if row.finished) if measure else 0
        if lacking:
            rows = counted(lacking, "row was", "rows were")
            sentences.append(
                f"{rows} run without --measures {measure}, and {COLUMNS[name].heading.split(',')[0]} is unknown."
            )
    return sentences
