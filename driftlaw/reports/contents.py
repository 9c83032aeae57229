"""Tables and notes of a document, made from result tables: numbers become text here, once for all formats."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from driftlaw.reports import format as fmt
from driftlaw.reports.columns import COLUMNS, column_text, iou_means
from driftlaw.reports.document import Cell, Column, Note, Table
from driftlaw.reports.published import Comparison
from driftlaw.reports.result_table import BASELINE, SERIES_COLORS, ResultRow, ResultTable, TableValue
from driftlaw.reports.statistics import RESAMPLES
from driftlaw.reports.tables import make_run_row

KEY_LINE: str = fmt.LABELS["captions"]["errors"]
PAGE_KEY_LINE: str = fmt.LABELS["captions"]["errors_page"]
COST_KEY: str = fmt.LABELS["captions"]["cost"]

ColumnGroup = tuple[Sequence[Column], Callable[[ResultRow], Sequence[Cell | str]]]
"""Columns, and the function that returns their cells for a row."""

_METHOD = Column("method", "label")
_RUNS: ColumnGroup = (
    [Column("source-free", "flag", "method needs no training data during adaptation"), Column("seeds")],
    lambda row: ["no" if row.needs_train_data else "yes", str(len(row.seeds))],
)


def page_title(tables: Sequence[ResultTable]) -> str:
    """Return the title of a page in words: datasets, schedule and methods."""
    streams = [table.rows[0].first.header["stream"] for table in tables]
    datasets = dict.fromkeys(fmt.dataset_title(stream) for stream in streams)
    schedules = dict.fromkeys(str(stream["schedule"]) for stream in streams)
    rows = [row for table in tables for row in table.rows]
    methods = list(dict.fromkeys(row.title.lower() if row.method == BASELINE else row.title for row in rows))
    protocols = [fmt.counted(len(tables), "protocol")] if len(tables) > 1 else []
    subject = ", ".join([fmt.joined(list(datasets)), *(schedules if len(schedules) == 1 else ()), *protocols])
    return f"{subject}: {fmt.joined(methods) if len(methods) <= 8 else fmt.counted(len(methods), 'method')}"


def run_dates(tables: Sequence[ResultTable]) -> str:
    """Return the dates of the first and the last run; empty if the records have none."""
    records = [record for table in tables for row in table.rows for record in row.records]
    started = [record.header.get("timing", {}).get("started") for record in records]
    dates = sorted(datetime.fromisoformat(text).date() for text in started if text)
    return " to ".join(dict.fromkeys(f"{date.day} {date:%B %Y}" for date in dates[:1] + dates[-1:]))


def timing_notes(table: ResultTable) -> list[str]:
    """Return a note for runs during which other processes used the machine, so that times are not reliable."""
    runs = [(row.label, record) for row in table.rows for record in row.records]
    shared = fmt.joined(list(dict.fromkeys(label for label, record in runs if record.shared_gpu)))
    busy = fmt.joined(list(dict.fromkeys(label for label, record in runs if record.busy_machine)))
    load = f"load average up to {max(max(record.load_average) for _, record in runs):.1f}"
    notes = {
        f"Other processes used the GPU during runs of {shared}: times of these runs are left out.": shared,
        f"The machine was busy during runs of {busy} ({load}): times of these runs may be too long.": busy,
    }
    return [note for note, labels in notes.items() if labels]


def summarize(table: ResultTable) -> str:
    """Return the result in words: which method has the lowest error, compared with the source model and the next."""
    ranked = table.ranked
    if not ranked and any(row.finished for row in table.rows):
        return "The stream has no labels, so that no error is known."
    if not ranked:
        return "No run is finished yet."
    best = ranked[0]
    mean = f"{value_cell(best.summaries[0]).value} % ({fmt.counted(len(best.seeds), 'seed')})"
    if len(ranked) == 1:
        return f"{best.label} has a mean error of {mean}."
    source = ""
    if table.baseline is not None and best.difference is not None:
        side = "below" if best.difference < 0 else "above"
        points = f"{fmt.error_text(abs(best.difference))} percentage points {side}"
        source = f", {points} the source model ({fmt.error_text(table.baseline.summaries[0].mean)} %)"
    second, error = ranked[1], fmt.error_text(ranked[1].summaries[0].mean)
    if fmt.error_text(best.summaries[0].mean) == error:
        return f"{best.label} and {second.label} share the lowest mean error: {mean}{source}."
    following = "" if second.method == BASELINE else f" The next is {second.label} with {error} %."
    return f"{best.label} has the lowest mean error: {mean}{source}.{following}"


def describe_differences(table: ResultTable) -> str:
    """Return the paired difference of every row from the best row; empty if no rows have common seeds."""
    rows = [row for row in reversed(table.rows) if row.vs_best is not None]
    if not rows:
        return ""
    differences = "; ".join(f"{row.label} {fmt.interval_text(row.vs_best)}" for row in rows)
    return (
        f"Difference from {table.ranked[0].label} in percentage points, with 95 % bootstrap intervals ({RESAMPLES:,} "
        f"resamples, paired by domain and seed): {differences}."
    )


def protocol_note(table: ResultTable) -> Note:
    """Return the protocol of a table as a note."""
    return Note(f"Protocol: {table.protocol.line}.", "protocol", table.protocol.items)


def label_cell(table: ResultTable, row: ResultRow, *, shows_needs: bool = False) -> Cell:
    """Return the first cell of a row: method, distinguishing settings, and the progress of an unfinished run."""
    index = table.series(row)
    needs = "needs train data" if shows_needs and row.needs_train_data else ""
    return Cell(
        row.title,
        details=tuple(detail for detail in (row.settings_label, needs) if detail),
        warning="" if row.finished else f"unfinished: {row.progress}",
        series=(index - 1) % SERIES_COLORS + 1 if index else 0,
        row=table.rows.index(row),
    )


def value_cell(value: TableValue) -> Cell:
    """Return a mean error with its standard deviation and mark."""
    return Cell(fmt.error_text(value.mean), fmt.spread_text(value.spread), value.mark)


def _fill(title: str, table: ResultTable, *groups: ColumnGroup, shows_needs: bool = False) -> Table:
    """Return a table with one line per row: its label, then the cells of all groups of columns."""
    columns = (_METHOD, *(column for group, _ in groups for column in group))
    rows = []
    for row in table.rows:
        cells = [cell for _, to_cells in groups for cell in to_cells(row)]
        label = label_cell(table, row, shows_needs=shows_needs)
        rows.append((label, *(Cell(cell) if isinstance(cell, str) else cell for cell in cells)))
    return Table(title, columns, tuple(rows))


def _errors(table: ResultTable, domains: Iterable[Column], summaries: Iterable[Column]) -> ColumnGroup:
    """Return errors per domain, summaries, and the difference from the source model if it was run."""

    def cells(row: ResultRow) -> list[Cell | str]:
        errors = [replace(value_cell(value), spread="") for value in row.domains]
        difference = [fmt.difference_text(row.difference)] if table.baseline else []
        return [*errors, *map(value_cell, row.summaries), *difference]

    return [*domains, *summaries, *([Column("vs source")] if table.baseline else [])], cells


def _metrics(names: Sequence[str]) -> ColumnGroup:
    return [Column(COLUMNS[name].heading) for name in names], lambda row: [column_text(row, name) for name in names]


def errors_table(table: ResultTable) -> Table:
    """Return the error of every row in every domain, and the summaries."""
    domains = (Column(fmt.short_name(name), full_name=name) for name in table.domains)
    summaries = (Column(name, starts_group=True) for name in table.summary_names)
    return _fill("Error by domain", table, _RUNS, _errors(table, domains, summaries))


def results_table(table: ResultTable, comparison: Comparison | None = None) -> Table:
    """Return mean error and cost of every row, next to the published values if there is a comparison."""
    headings = [f"error, {name}" for name in table.summary_names]
    if comparison:
        headings = [text for name in table.summary_names for text in (f"error, {name}", f"paper, {name}", "difference")]
    columns = [*map(Column, headings), Column("FLOPs/image per step"), Column("ms/step")]
    columns += [Column("forward FLOPs, paper"), Column("different settings", "text")] if comparison else []
    lines = {line.row: line for line in comparison.rows} if comparison else {}

    def cells(row: ResultRow) -> list[Cell | str]:
        cost: list[Cell | str] = [fmt.flops_text(row.cost.step_flops), fmt.milliseconds_text(row.cost.seconds)]
        if not comparison:
            return [*map(value_cell, row.summaries), *cost]
        line, errors = lines[row], []
        spread = line.published.spread if line.published else None
        for ours, paper, difference in zip(row.summaries, line.summaries, line.differences, strict=True):
            errors += [
                value_cell(ours),
                Cell(fmt.paper_text(paper), fmt.spread_text(spread)),
                Cell(fmt.difference_text(difference)),
            ]
            spread = None  # the paper prints it for the first column only
        gflops = line.published.gflops if line.published else None
        flops = fmt.flops_text(None if gflops is None else 1e9 * gflops)
        return [*errors, *cost, flops, "; ".join(line.setting_differences) or fmt.MISSING]

    return _fill("Comparison with the paper" if comparison else "Results", table, _RUNS, (columns, cells))


def overview_table(table: ResultTable, names: Sequence[str]) -> Table:
    """Return errors, optional columns and cost of every row in one table, for the terminal."""
    summaries = (Column(name, starts_group=index == 0) for index, name in enumerate(table.summary_names))
    errors = _errors(table, map(Column, table.domains), summaries)
    metrics = _metrics([name for name in names if name not in ("error", "ms")])
    time: ColumnGroup = [Column("ms/step", starts_group=True)], lambda row: [fmt.milliseconds_text(row.cost.seconds)]
    passes: ColumnGroup = [Column("forward passes")], lambda row: [fmt.passes_text(row.cost.forward_passes)]
    has_passes = any(row.cost.forward_passes for row in table.rows)
    groups = [errors, metrics, time, *([passes] if has_passes else [])]
    return _fill(f"Online error, % · {table.protocol.name}", table, *groups, shows_needs=True)


def metrics_table(table: ResultTable, names: Sequence[str]) -> Table:
    """Return optional columns as a table of their own."""
    return _fill("Additional metrics", table, _metrics(names))


def iou_tables(table: ResultTable) -> list[tuple[Table, Note]]:
    """Return mean IoU by domain and IoU by class of every row, with captions; empty without label maps."""
    means = {row: iou_means(row) for row in table.rows}
    tables = []
    for key, title in (("mean_iou_by_domain", "Mean IoU by domain, %"), ("iou_by_class", "IoU by class, %")):
        names = list(dict.fromkeys(name for parts in means.values() for name in parts.get(key, ())))
        last = [Column("mean", starts_group=True)] if key == "mean_iou_by_domain" else []

        def cells(row: ResultRow, key: str = key, names: list[str] = names, last: list[Column] = last) -> list[str]:
            values = means[row].get(key, {})
            return [fmt.error_text(values.get(name)) for name in names] + [column_text(row, "miou") for _ in last]

        if names:
            columns = [Column(fmt.short_name(name), full_name=name) for name in names]
            filled = _fill(title, table, ([*columns, *last], cells))
            tables.append((filled, Note(fmt.LABELS["captions"][key], "caption")))
    return tables


def costs_table(table: ResultTable) -> Table:
    """Return the cost per step of every row."""
    headings = ["ms/step", "forward passes per step", "FLOPs/image, forward pass", "FLOPs/image, step", "peak memory"]

    def cells(row: ResultRow) -> list[str]:
        cost = row.cost
        time, passes = fmt.milliseconds_text(cost.seconds), fmt.passes_text(cost.forward_passes)
        flops = [fmt.flops_text(cost.forward_flops), fmt.flops_text(cost.step_flops)]
        return [time, passes, *flops, fmt.bytes_text(cost.peak_bytes), cost.device]

    return _fill("Cost", table, ([*map(Column, headings), Column("device", "text")], cells))


def settings_table(table: ResultTable) -> Table:
    """Return the settings of every row."""

    def cells(row: ResultRow) -> list[Cell]:
        settings = tuple(f"{name} = {fmt.value_text(value)}" for name, value in sorted(row.settings.items()))
        return [Cell("", details=settings or ("none",))]

    return _fill("Settings", table, ([Column("settings", "list")], cells))


def records_table(table: ResultTable) -> Table:
    """Return error, time, versions, path and command of every run."""
    columns = [_METHOD, Column("seed"), Column(table.summary_names[0]), Column("seconds")]
    columns += [Column("state", "text"), Column("commit", "code"), Column("software", "text"), Column("record", "code")]
    rows = []
    for row, record in ((each, record) for each in table.rows for record in each.records):
        header = record.header
        texts = [
            str(record.seed),
            fmt.error_text(make_run_row(record, table).summaries[0].mean),
            fmt.error_text(record.timing.get("seconds")),
            "finished" if record.finished else f"unfinished: {row.progress}",
            str(header.get("commit") or fmt.MISSING),
            fmt.listed([f"{name} {version}" for name, version in sorted(header.get("versions", {}).items())]),
        ]
        path = record.path.as_posix() if record.path else fmt.MISSING
        where = Cell(path, details=(header["command"],) if header.get("command") else ())
        rows.append((replace(label_cell(table, row), warning=""), *map(Cell, texts), where))
    return Table("Records", tuple(columns), tuple(rows))
