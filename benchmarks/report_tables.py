"""Records of ``driftlaw bench`` as tables: for a terminal, and as Markdown; ratios stand beside the figures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from driftlaw.errors import DataError, UsageError
from driftlaw.reports.format import MISSING

Record = dict[str, Any]
MEGA = 1e6


@dataclass(frozen=True)
class BenchTable:
    """One table: a title, column heads, lines of text. The first column holds names, the others figures."""

    title: str
    head: Sequence[str]
    lines: Sequence[Sequence[str]]


def read_bench(path: Path) -> Record:
    """Return the record of a benchmark of steps; anything else at ``path`` raises DataError."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {path} as a record of a benchmark: {error}") from error
    kind = record.get("bench") if isinstance(record, dict) else None
    if kind not in TABLES:
        raise DataError(f"{path} is no record of a benchmark of steps: found {kind}, expected {', '.join(TABLES)}")
    return dict(record)


def make_bench_tables(record: Record) -> list[BenchTable]:
    """Return the tables of a record."""
    return list(TABLES[record["bench"]](record))


def bench_notes(record: Record) -> list[str]:
    """Return what must be said beside the tables: where it was measured, rates, what grew, what was left out."""
    device, versions = record["device"], record["versions"]
    where = f"{device['name']}, {device['threads']} threads, torch {versions['torch']}, commit {record.get('commit')}"
    left_out = [f"left out: {entry['label']} ({entry['why']})" for entry in record["left_out"]]
    rates = _rates(record) if record["bench"] == "floor" else []
    return [*rates, where, *left_out]


def render_bench_text(record: Record) -> str:
    """Return a record as text for a terminal."""
    tables = [f"{table.title}\n{_aligned(table)}" for table in make_bench_tables(record)]
    return "\n\n".join([*tables, "\n".join(bench_notes(record))])


def render_bench_markdown(records: Iterable[Record]) -> str:
    """Return records as Markdown tables."""
    parts = []
    for record in records:
        for table in make_bench_tables(record):
            parts += [f"**{table.title}**", _markdown(table)]
        parts.append("\n".join(f"- {note}" for note in bench_notes(record)))
        if record.get("command"):
            parts.append(f"`{record['command']}`")
    if not parts:
        raise UsageError("no record of a benchmark was given")
    return "\n\n".join(parts) + "\n"


# --- one function a kind of record -------------------------------------------------------------------------------


def cells_of(record: Record) -> Iterator[tuple[str, list[Record]]]:
    """Yield the rows of every network and batch size under a title."""
    for (model, size), group in groupby(record["rows"], key=lambda row: (row["model"], row["batch_size"])):
        yield f"{model}, batch {size}", list(group)


def _step_tables(record: Record) -> Iterator[BenchTable]:
    for title, rows in cells_of(record):
        lines = []
        for row in rows:
            times = row["milliseconds"]
            quartiles = f"{times['lower_quartile']:.2f} – {times['upper_quartile']:.2f}"
            ratios = [times_text(row[f"times_faster_than_{name}"]) for name in ("plain_law", "plain_tent")]
            lines.append((row["label"], f"{times['median']:.2f}", quartiles, *ratios, *_memory(row)))
        head = ("", "ms a step", "quartiles", "speed : plain LAW", "speed : plain TENT", "peak MB", "of plain LAW")
        yield BenchTable(title, head if "peak_bytes" in rows[0] else head[:5], lines)


def _memory_tables(record: Record) -> Iterator[BenchTable]:
    for title, rows in cells_of(record):
        lines = [(row["label"], *_memory(row), f"{row['held_bytes'] / MEGA:.1f}") for row in rows]
        yield BenchTable(title, ("", "peak MB", "of plain LAW", "held MB"), lines)


def _facts_tables(record: Record) -> Iterator[BenchTable]:
    for title, rows in cells_of(record):
        lines = [
            (
                row["label"],
                str(row["numbers"]),
                f"{row['without']['median']:.2f}",
                f"{row['with']['median']:.2f}",
                f"{100 * row['cost']:+.1f} %",
            )
            for row in rows
        ]
        yield BenchTable(title, ("", "numbers", "ms without", "ms with", "cost"), lines)


def _floor_tables(record: Record) -> Iterator[BenchTable]:
    for title, rows in cells_of(record):
        lines = [
            (
                row["label"],
                f"{row['operations'] / 1e9:,.1f}",
                f"{row['least_bytes'] / MEGA:,.0f}",
                f"{row['floor_milliseconds']:.3f}",
                row["bound_by"],
                f"{row['milliseconds']['median']:.2f}",
                times_text(row["times_above_floor"]),
            )
            for row in rows
        ]
        head = ("", "GFLOP", "MB at least", "floor, ms", "bound by", "measured, ms", "× the floor")
        yield BenchTable(title, head, lines)


def _rates(record: Record) -> list[str]:
    return [
        f"{row['precision']}, {row['model']}: matrix product {row['matrix_operations_per_second'] / 1e12:.2f}, "
        f"convolution {row['convolution_operations_per_second'] / 1e12:.2f} TFLOP a second, copy "
        f"{row['bytes_per_second'] / 1e9:.1f} GB a second"
        for row in {(row["precision"], row["model"]): row for row in record["rows"]}.values()
    ]


def _scaling_tables(record: Record) -> Iterator[BenchTable]:
    for curve in record["axes"]:
        labels = list(dict.fromkeys(row["label"] for row in curve["rows"]))
        note = f" ({curve['note']})" if curve["note"] else ""
        lines = []
        for value, rows in groupby(curve["rows"], key=lambda row: row["value"]):
            found = {row["label"]: row for row in rows}
            lines.append((str(value), *(_time_and_memory(found[label]) for label in labels)))
        title = f"{curve['axis'].replace('_', ' ')}: ms a step and peak MB{note}"
        yield BenchTable(title, ("", *labels), lines)
    if record["stream"]:
        lines = [_stream_line(entry) for entry in record["stream"]]
        head = ("", "batches", "ms a step", "2nd half : 1st", "last : 2nd window", "memory held, last : 2nd")
        yield BenchTable("along a stream", head, lines)


def _stream_line(entry: Record) -> tuple[str, ...]:
    last, growth = entry["windows"][-1], entry["growth"]
    ratios = (f"{growth[name]:.3f}" for name in ("milliseconds_halves", "milliseconds", "held_bytes"))
    return entry["label"], f"{last['batches']:,}", f"{last['milliseconds']['median']:.2f}", *ratios


TABLES: dict[str, Callable[[Record], Iterable[BenchTable]]] = {
    "step": _step_tables,
    "memory": _memory_tables,
    "facts": _facts_tables,
    "floor": _floor_tables,
    "scaling": _scaling_tables,
}


# --- text --------------------------------------------------------------------------------------------------------


def times_text(ratio: float | None) -> str:
    """Return a ratio as text.

    >>> times_text(6.7)
    '6.70×'
    """
    return MISSING if ratio is None else f"{ratio:.2f}×"


def _memory(row: Record) -> tuple[str, ...]:
    if "peak_bytes" not in row:
        return ()
    share = row["share_of_plain_law"]
    return f"{row['peak_bytes'] / MEGA:.1f}", MISSING if share is None else f"{share:.2f}"


def _time_and_memory(row: Record) -> str:
    return f"{row['milliseconds']['median']:.2f} · {row['peak_bytes'] / MEGA:.1f}"


def _aligned(table: BenchTable) -> str:
    """Return aligned columns: the first to the left, the rest to the right."""
    lines = (table.head, *table.lines)
    widths = [max(len(line[column]) for line in lines) for column in range(len(table.head))]
    return "\n".join("  ".join(_padded(line, widths)).rstrip() for line in lines)


def _padded(line: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    for column, (text, width) in enumerate(zip(line, widths, strict=True)):
        yield text.rjust(width) if column else text.ljust(width)


def _markdown(table: BenchTable) -> str:
    rule = ["---", *["---:"] * (len(table.head) - 1)]
    lines = [[text.replace("|", "\\|") for text in line] for line in (table.head, rule, *table.lines)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
