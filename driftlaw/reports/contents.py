"""Tables and notes of a document, made from result tables: numbers become text here, once for all formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from driftlaw.reports.columns import COLUMNS, column_text
from driftlaw.reports.document import Cell, Column, Note, Table
from driftlaw.reports.format import (
    MISSING,
    bytes_text,
    counted,
    difference_text,
    error_text,
    flops_text,
    interval_text,
    listed,
    milliseconds_text,
    paper_text,
    passes_text,
    short_name,
    spread_text,
    value_text,
)
from driftlaw.reports.published import ComparedRow, Comparison
from driftlaw.reports.result_table import BASELINE, SERIES_COLORS, ResultRow, ResultTable, TableValue
from driftlaw.reports.statistics import RESAMPLES
from driftlaw.reports.tables import make_run_row

KEY_LINE = (
    "Online error in percent: each image is classified once, when it arrives. Lower is better. Bold: lowest error of "
    "the column, if the 95 % bootstrap intervals of its paired differences from all other rows exclude zero (six or "
    "more pairs). Underlined: second lowest error, and lowest error if an interval includes zero. ±: standard "
    "deviation over seeds (n − 1)."
)
COST_KEY = (
    "Forward pass: 2 × the multiply-adds of one pass through the model, as in papers. Step: measured FLOPs, forward "
    "and backward. Time: median over steps and seeds. Peak memory: of the GPU, or of the whole process on a CPU."
)
_METHOD = Column("method", "label")
_SOURCE_FREE = Column("source-free", "flag", "method needs no training data during adaptation")


def summarize(table: ResultTable) -> str:
    """Return the result in words: which method has the lowest error, compared with the source model and the next."""
    ranked = table.ranked
    if not ranked:
        return "No run is finished yet."
    best = ranked[0]
    mean = f"{value_cell(best.summaries[0]).value} % ({counted(len(best.seeds), 'seed')})"
    if len(ranked) == 1:
        return f"{best.label} has a mean error of {mean}."
    source = ""
    if table.baseline is not None and best.difference is not None:
        side = "below" if best.difference < 0 else "above"
        points = f"{error_text(abs(best.difference))} percentage points {side}"
        source = f", {points} the source model ({error_text(table.baseline.summaries[0].mean)} %)"
    second, error = ranked[1], error_text(ranked[1].summaries[0].mean)
    if error_text(best.summaries[0].mean) == error:
        return f"{best.label} and {second.label} share the lowest mean error: {mean}{source}."
    following = "" if second.method == BASELINE else f" The next is {second.label} with {error} %."
    return f"{best.label} has the lowest mean error: {mean}{source}.{following}"


def describe_differences(table: ResultTable) -> str:
    """Return the paired difference of every row from the best row; empty if no rows have common seeds."""
    rows = [row for row in reversed(table.rows) if row.vs_best is not None]
    if not rows:
        return ""
    differences = "; ".join(f"{row.label} {interval_text(row.vs_best)}" for row in rows)
    return (
        f"Difference from {table.ranked[0].label} in percentage points, with 95 % bootstrap intervals ({RESAMPLES:,} "
        f"resamples, paired by domain and seed): {differences}."
    )


def protocol_note(table: ResultTable) -> Note:
    """Return the protocol of a table as a note."""
    return Note(f"Protocol: {table.protocol.line}.", "protocol", table.protocol.items)


def label_cell(table: ResultTable, row: ResultRow) -> Cell:
    """Return the first cell of a row: method, distinguishing settings, and the progress of an unfinished run."""
    index = table.series(row)
    return Cell(
        row.title,
        details=(row.settings_label,) if row.settings_label else (),
        warning="" if row.finished else f"unfinished: {row.progress}",
        series=(index - 1) % SERIES_COLORS + 1 if index else 0,
    )


def value_cell(value: TableValue) -> Cell:
    """Return a mean error with its standard deviation and mark."""
    return Cell(error_text(value.mean), spread_text(value.spread), value.mark)


def error_cells(row: ResultRow) -> list[Cell]:
    """Return the errors of a row: per domain without standard deviation, then the summaries."""
    domains = [Cell(error_text(value.mean), mark=value.mark) for value in row.domains]
    return domains + [value_cell(value) for value in row.summaries]


def _source_free(row: ResultRow) -> Cell:
    return Cell("no" if row.needs_train_data else "yes")


def errors_table(table: ResultTable) -> Table:
    """Return the error of every row in every domain, and the summaries."""
    columns = [
        *(_METHOD, _SOURCE_FREE, Column("seeds")),
        *(Column(short_name(name), full_name=name) for name in table.domains),
        *(Column(name, starts_group=True) for name in table.summary_names),
        *([Column("vs source")] if table.baseline else []),
    ]
    rows = [
        (
            *(label_cell(table, row), _source_free(row), Cell(str(len(row.seeds))), *error_cells(row)),
            *([Cell(difference_text(row.difference))] if table.baseline else []),
        )
        for row in table.rows
    ]
    return Table("Error by domain", tuple(columns), tuple(rows))


def results_table(table: ResultTable, comparison: Comparison | None = None) -> Table:
    """Return mean error and cost of every row, next to the published values if there is a comparison."""
    columns = [_METHOD, _SOURCE_FREE, Column("seeds")]
    for name in table.summary_names:
        columns.append(Column(f"error, {name}"))
        columns += [Column(f"paper, {name}"), Column("difference")] if comparison else []
    columns += [Column("FLOPs/image per step"), Column("ms/step")]
    columns += [Column("forward FLOPs, paper"), Column("different settings", "text")] if comparison else []
    lines = comparison.rows if comparison else [ComparedRow(row, None) for row in table.rows]
    rows = []
    for line in lines:
        row, published = line.row, line.published
        cells = [label_cell(table, row), _source_free(row), Cell(str(len(row.seeds)))]
        spread = published.spread if published else None
        for ours, paper, difference in zip(row.summaries, line.summaries, line.differences, strict=True):
            paper_cells = [Cell(paper_text(paper), spread_text(spread)), Cell(difference_text(difference))]
            cells += [value_cell(ours), *(paper_cells if comparison else [])]
            spread = None  # the paper prints it for the first column only
        cells += [Cell(flops_text(row.cost.step_flops)), Cell(milliseconds_text(row.cost.seconds))]
        if comparison:
            gflops = published.gflops if published else None
            cells.append(Cell(flops_text(None if gflops is None else 1e9 * gflops)))
            cells.append(Cell("; ".join(line.setting_differences) or MISSING))
        rows.append(tuple(cells))
    return Table("Comparison with the paper" if comparison else "Results", tuple(columns), tuple(rows))


def overview_table(table: ResultTable, names: Sequence[str]) -> Table:
    """Return errors, optional columns and cost of every row in one table, for the terminal."""
    extra = [name for name in names if name not in ("error", "ms")]
    has_passes = any(row.cost.forward_passes for row in table.rows)
    columns = [
        *(_METHOD, *map(Column, table.domains)),
        *(Column(name, starts_group=index == 0) for index, name in enumerate(table.summary_names)),
        *([Column("vs source")] if table.baseline else []),
        *(Column(COLUMNS[name].heading) for name in extra),
        Column("ms/step", starts_group=True),
        *([Column("forward passes")] if has_passes else []),
    ]
    rows = []
    for row in table.rows:
        texts = [difference_text(row.difference)] if table.baseline else []
        texts += [*(column_text(row, name) for name in extra), milliseconds_text(row.cost.seconds)]
        texts += [passes_text(row.cost.forward_passes)] if has_passes else []
        label = label_cell(table, row)
        if row.needs_train_data:
            label = replace(label, details=(*label.details, "needs train data"))
        rows.append((label, *error_cells(row), *map(Cell, texts)))
    return Table(f"Online error, % · {table.protocol.name}", tuple(columns), tuple(rows))


def metrics_table(table: ResultTable, names: Sequence[str]) -> Table:
    """Return optional columns as a table of their own."""
    columns = (_METHOD, *(Column(COLUMNS[name].heading) for name in names))
    rows = [(label_cell(table, row), *(Cell(column_text(row, name)) for name in names)) for row in table.rows]
    return Table("Additional metrics", columns, tuple(rows))


def costs_table(table: ResultTable) -> Table:
    """Return the cost per step of every row."""
    headings = ["ms/step", "forward passes per step", "FLOPs/image, forward pass", "FLOPs/image, step", "peak memory"]
    rows = []
    for row in table.rows:
        texts = [
            milliseconds_text(row.cost.seconds),
            passes_text(row.cost.forward_passes),
            flops_text(row.cost.forward_flops),
            flops_text(row.cost.step_flops),
            bytes_text(row.cost.peak_bytes),
            row.cost.device,
        ]
        rows.append((label_cell(table, row), *map(Cell, texts)))
    return Table("Cost", (_METHOD, *map(Column, headings), Column("device", "text")), tuple(rows))


def settings_table(table: ResultTable) -> Table:
    """Return the settings of every row."""
    rows = []
    for row in table.rows:
        settings = tuple(f"{name} = {value_text(value)}" for name, value in sorted(row.settings.items()))
        rows.append((label_cell(table, row), Cell("", details=settings or ("none",))))
    return Table("Settings", (_METHOD, Column("settings", "list")), tuple(rows))


def records_table(table: ResultTable) -> Table:
    """Return error, time, versions, path and command of every run."""
    columns = [_METHOD, Column("seed"), Column(table.summary_names[0]), Column("seconds")]
    columns += [Column("state", "text"), Column("commit", "code"), Column("software", "text"), Column("record", "code")]
    rows = []
    for row in table.rows:
        for record in row.records:
            header = record.header
            versions = listed([f"{name} {version}" for name, version in sorted(header.get("versions", {}).items())])
            rows.append(
                (
                    Cell(row.label),
                    Cell(str(record.seed)),
                    Cell(error_text(make_run_row(record, table).summaries[0].mean)),
                    Cell(error_text(record.timing.get("seconds"))),
                    Cell("finished" if record.finished else f"unfinished: {row.progress}"),
                    Cell(str(header.get("commit") or MISSING)),
                    Cell(versions),
                    Cell(
                        record.path.as_posix() if record.path else MISSING,
                        details=(header["command"],) if header.get("command") else (),
                    ),
                )
            )
    return Table("Records", tuple(columns), tuple(rows))
