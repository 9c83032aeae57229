"""Benchmark records as tables, for a terminal and as Markdown."""

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
    """A table: title, column headings, lines of text. The first column holds names, the others numbers."""

    title: str
    head: Sequence[str]
    lines: Sequence[Sequence[str]]


def read_bench(path: Path) -> Record:
    """Return the record of a benchmark.

    Raises:
        DataError: the file cannot be read, or is not the record of a benchmark.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"Cannot read {path} as a benchmark record: {error}.") from error
    kind = record.get("bench") if isinstance(record, dict) else None
    if kind not in TABLES:
        raise DataError(f"{path} is not a benchmark record: found kind {kind}, expected one of {', '.join(TABLES)}.")
    return dict(record)


def make_bench_tables(record: Record) -> list[BenchTable]:
    """Return the tables of a record."""
    return list(TABLES[record["bench"]](record))


def bench_notes(record: Record) -> list[str]:
    """Return the notes below the tables: measured rates, device and software, skipped variants."""
    device, versions = record["device"], record["versions"]
    where = f"{device['name']}, {device['threads']} threads, torch {versions['torch']}, commit {record.get('commit')}"
    skipped = [f"skipped: {entry['label']} ({entry['why']})" for entry in record.get("left_out", [])]
    remarks = _rates(record) if record["bench"] == "floor" else []
    if record["bench"] == "compare":
        remarks = ["this / other: ratio of the medians; below 1, this checkout is faster. Quartiles are over rounds."]
    return [*remarks, where, *skipped]


def render_bench_text(record: Record) -> str:
    """Return a record as text for a terminal."""
    tables = [f"{table.title}\n{_align_columns(table)}" for table in make_bench_tables(record)]
    return "\n\n".join([*tables, "\n".join(bench_notes(record))])


def render_bench_markdown(records: Iterable[Record]) -> str:
    """Return records as Markdown tables, each with its notes and its command."""
    parts = []
    for record in records:
        for table in make_bench_tables(record):
            parts += [f"**{table.title}**", _markdown(table)]
        parts.append("\n".join(f"- {note}" for note in bench_notes(record)))
        if record.get("command"):
            parts.append(f"`{record['command']}`")
    if not parts:
        raise UsageError("No benchmark records were given. Pass the JSON files that the benchmarks wrote.")
    return "\n\n".join(parts) + "\n"


def rows_by_case(record: Record) -> Iterator[tuple[str, list[Record]]]:
    """Yield a title and the rows of every model and batch size."""
    for (model, size), group in groupby(record["rows"], key=lambda row: (row["model"], row["batch_size"])):
        yield f"{model}, batch size {size}", list(group)


def _step_tables(record: Record) -> Iterator[BenchTable]:
    for title, rows in rows_by_case(record):
        lines = []
        for row in rows:
            times = row["milliseconds"]
            quartiles = f"{times['lower_quartile']:.2f} – {times['upper_quartile']:.2f}"
            ratios = [ratio_text(row[f"times_faster_than_{name}"]) for name in ("plain_law", "plain_tent")]
            lines.append((row["label"], f"{times['median']:.2f}", quartiles, *ratios, *_memory_columns(row)))
        head = ("", "ms/step", "quartiles", "speedup vs. naive LAW", "speedup vs. naive TENT", *_MEMORY_HEAD)
        yield BenchTable(title, head if "peak_bytes" in rows[0] else head[:5], lines)


def _memory_tables(record: Record) -> Iterator[BenchTable]:
    for title, rows in rows_by_case(record):
        lines = [(row["label"], *_memory_columns(row), f"{row['held_bytes'] / MEGA:.1f}") for row in rows]
        yield BenchTable(title, ("", *_MEMORY_HEAD, "MB between steps"), lines)


def _diagnostics_tables(record: Record) -> Iterator[BenchTable]:
    for title, rows in rows_by_case(record):
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
        yield BenchTable(title, ("", "values per step", "ms/step without", "ms/step with", "overhead"), lines)


def _roofline_tables(record: Record) -> Iterator[BenchTable]:
    for title, rows in rows_by_case(record):
        lines = [
            (
                row["label"],
                f"{row['operations'] / 1e9:,.1f}",
                f"{row['least_bytes'] / MEGA:,.0f}",
                f"{row['floor_milliseconds']:.3f}",
                row["bound_by"],
                f"{row['milliseconds']['median']:.2f}",
                ratio_text(row["times_above_floor"]),
            )
            for row in rows
        ]
        head = ("", "GFLOP", "least MB", "limit, ms", "bound by", "measured, ms", "measured / limit")
        yield BenchTable(title, head, lines)


def _rates(record: Record) -> list[str]:
    return [
        f"{row['precision']}, {row['model']}: matrix product {row['matrix_operations_per_second'] / 1e12:.2f} TFLOP/s, "
        f"convolution {row['convolution_operations_per_second'] / 1e12:.2f} TFLOP/s, copy "
        f"{row['bytes_per_second'] / 1e9:.1f} GB/s"
        for row in {(row["precision"], row["model"]): row for row in record["rows"]}.values()
    ]


def _scaling_tables(record: Record) -> Iterator[BenchTable]:
    for curve in record["axes"]:
        labels = list(dict.fromkeys(row["label"] for row in curve["rows"]))
        note = f" ({curve['note']})" if curve["note"] else ""
        lines = []
        for value, rows in groupby(curve["rows"], key=lambda row: row["value"]):
            by_label = {row["label"]: row for row in rows}
            lines.append((str(value), *(_time_and_memory(by_label[label]) for label in labels)))
        title = f"{curve['axis'].replace('_', ' ')}: ms/step and peak MB{note}"
        yield BenchTable(title, ("", *labels), lines)
    if record["stream"]:
        head = ("", "batches", "ms/step", "ms, 2nd / 1st half", "ms, last / 2nd window", "memory, last / 2nd window")
        yield BenchTable("along a stream", head, [_stream_line(entry) for entry in record["stream"]])


def _stream_line(entry: Record) -> tuple[str, ...]:
    last, growth = entry["windows"][-1], entry["growth"]
    ratios = (f"{growth[name]:.3f}" for name in ("milliseconds_halves", "milliseconds", "held_bytes"))
    return entry["label"], f"{last['batches']:,}", f"{last['milliseconds']['median']:.2f}", *ratios


def _corruption_tables(record: Record) -> Iterator[BenchTable]:
    lines = [
        (
            speed["name"],
            f"{speed['images_per_second']:,.0f}",
            f"{speed['plain_images_per_second']:,.0f}",
            ratio_text(speed["ratio"]),
        )
        for speed in record["speeds"]
    ]
    total = [1 / record["seconds_per_image"], 1 / record["plain_seconds_per_image"]]
    lines.append(("all fifteen", *(f"{speed:,.0f}" for speed in total), ratio_text(record["ratio"])))
    title = f"severity {record['severity']}, {record['images']} images of {record['dataset']}: images per second"
    yield BenchTable(title, ("", "driftlaw", "reference", "speedup"), lines)


def _full_corruption_tables(record: Record) -> Iterator[BenchTable]:
    lines = [(name, f"{seconds:.2f}") for name, seconds in record["seconds_by_corruption"].items()]
    lines.append(("all fifteen", f"{record['seconds']:.2f}"))
    yield BenchTable(f"{record['images']:,} images", ("", "seconds"), lines)


def _error_tables(record: Record) -> Iterator[BenchTable]:
    lines = [(row["label"], f"{row['error']:.2f}") for row in record["rows"]]
    yield BenchTable(f"{record['preset']}, seeds {record['seeds']}", ("", "error in %"), lines)


def _batch_size_tables(record: Record) -> Iterator[BenchTable]:
    sizes = list(dict.fromkeys(row["batch_size"] for row in record["rows"]))
    by_method: dict[str, dict[int, Record]] = {}
    for row in record["rows"]:
        by_method.setdefault(row["method"], {})[row["batch_size"]] = row
    head = ("", *(f"batch of {size}" for size in sizes))
    for key, title, digits in (("error", "error in %", 1), ("images_per_second", "images per second", 0)):
        lines = [
            (method, *(f"{found[size][key]:,.{digits}f}" for size in sizes)) for method, found in by_method.items()
        ]
        yield BenchTable(
            f"{record['corruptions']} corruptions, statistics='{record['statistics']}': {title}", head, lines
        )


def _compare_tables(record: Record) -> Iterator[BenchTable]:
    names = {
        name: f"{name} ({checkout['commit'] or checkout['folder']})" for name, checkout in record["checkouts"].items()
    }
    for title, rows in rows_by_case(record):
        lines = [
            (
                row["target"],
                *(f"{row['milliseconds'][name]['median']:.3f}" for name in names),
                f"{row['ratio']:.3f}",
                f"{row['ratio_by_round']['lower_quartile']:.3f} – {row['ratio_by_round']['upper_quartile']:.3f}",
                "equal" if row["same_logits"] else "differ",
            )
            for row in rows
        ]
        heads = [f"ms/step, {name}" for name in names]
        yield BenchTable(
            f"{title}: {', '.join(names.values())}", ("", *heads, "this / other", "quartiles", "logits"), lines
        )


def _reliability_tables(record: Record) -> Iterator[BenchTable]:
    """Yield one table with a column per key of the rows. Values that are lists or dicts are left out."""
    keys = [key for key, value in record["rows"][0].items() if not isinstance(value, list | dict)]
    rows = [[row[key] for key in keys] for row in record["rows"]]
    lines = [[f"{value:g}" if isinstance(value, float) else str(value) for value in row] for row in rows]
    yield BenchTable(record["bench"], [key.replace("_", " ") for key in keys], lines)


SERVER = ("serve-hostile", "serve-kill", "serve-overload", "serve-schema", "serve-speed")
RELIABILITY = ("attack", "bad-images", "cost", "fuzz", "kill", *SERVER, "streams", "watch")
SCALE = ("pool", "ranks", "ranks-kill", "ray", "ray-overhead", "shards")
TABLES: dict[str, Callable[[Record], Iterable[BenchTable]]] = {
    "step": _step_tables,
    "memory": _memory_tables,
    "facts": _diagnostics_tables,
    "floor": _roofline_tables,
    "scaling": _scaling_tables,
    "corruptions": _corruption_tables,
    "corruptions-full": _full_corruption_tables,
    "errors": _error_tables,
    "batch-sizes": _batch_size_tables,
    "compare": _compare_tables,
    **{f"reliability-{name}": _reliability_tables for name in RELIABILITY},
    **{f"scale-{name}": _reliability_tables for name in SCALE},
}
"""Functions that make tables, by the value of the record key ``bench``."""
_MEMORY_HEAD = ("peak MB", "peak / naive LAW")


def ratio_text(ratio: float | None) -> str:
    """Return a ratio as text.

    >>> ratio_text(6.7)
    '6.70×'
    """
    return MISSING if ratio is None else f"{ratio:.2f}×"


def _memory_columns(row: Record) -> tuple[str, ...]:
    if "peak_bytes" not in row:
        return ()
    share = row["share_of_plain_law"]
    return f"{row['peak_bytes'] / MEGA:.1f}", MISSING if share is None else f"{share:.2f}"


def _time_and_memory(row: Record) -> str:
    return f"{row['milliseconds']['median']:.2f} · {row['peak_bytes'] / MEGA:.1f}"


def _align_columns(table: BenchTable) -> str:
    """Return aligned columns: the first to the left, the others to the right."""
    lines = (table.head, *table.lines)
    widths = [max(len(line[column]) for line in lines) for column in range(len(table.head))]
    padded = (
        [
            text.rjust(width) if column else text.ljust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ]
        for line in lines
    )
    return "\n".join("  ".join(line).rstrip() for line in padded)


def _markdown(table: BenchTable) -> str:
    rule = ["---", *["---:"] * (len(table.head) - 1)]
    lines = [[text.replace("|", "\\|") for text in line] for line in (table.head, rule, *table.lines)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
