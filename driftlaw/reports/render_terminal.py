"""A table for the terminal: a line a corruption, a column a method, as many side by side as the window holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from driftlaw.records import RunRecord
from driftlaw.reports.columns import COLUMNS, cell_text, describe_columns, headings
from driftlaw.reports.cost import cost_of
from driftlaw.reports.format import difference_text, error_text, milliseconds_text, spread_text, units_text
from driftlaw.reports.summary import summarise
from driftlaw.reports.tables import Cell, Row, Table, make_tables

_STYLES = {"best": "bold green", "second": "underline", "": ""}
_UNITS = "forward passes"
_ALWAYS_SHOWN = ("error", "ms")
_GAP = 3  # between two columns of a grid


@dataclass(frozen=True)
class TerminalReport:
    """What ``rich`` prints for every table: the errors, the mean, the costs, the outcome and the protocol line."""

    tables: tuple[Table, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        for table in self.tables:
            for rows in _side_by_side(table, options.max_width):
                yield _grid(table, rows)
            yield Padding(Text(summarise(table), style="bold"), (0, 1))
            for note in table.notes:
                yield Padding(Text(f"! {note}", style="yellow"), (0, 1))
            if table.columns:
                yield Padding(Text(describe_columns(table), style="dim"), (0, 1))
            yield Padding(Text(table.protocol.line, style="dim"), (0, 1, 1, 1))


def render_terminal(records: Iterable[RunRecord], columns: tuple[str, ...] = ()) -> TerminalReport:
    """Return the tables of some records for ``rich`` to print, with ``columns`` as further lines."""
    return TerminalReport(tuple(replace(table, columns=columns) for table in make_tables(records)))


def render_text(tables: Sequence[Table], command: str | None) -> str:
    """Return the same as plain text, as wide as the window at hand or as ``COLUMNS`` says."""
    console = Console(color_system=None)
    with console.capture() as captured:
        console.print(TerminalReport(tuple(tables)))
    return captured.get()


def _side_by_side(table: Table, width: int) -> Iterator[list[Row]]:
    """Yield as many rows at a time as fit beside each other."""
    left = max(len(name) for name in [*table.domains, *headings(table), _UNITS]) + _GAP
    rows: list[Row] = []
    used = left
    for row in table.rows:
        needed = _width(row, table.columns) + _GAP
        if rows and used + needed > width:
            yield rows
            rows, used = [], left
        rows.append(row)
        used += needed
    yield rows


def _width(row: Row, columns: Sequence[str]) -> int:
    cells = [_with_spread(cell) for cell in row.summaries] + [cell_text(row, name) for name in columns]
    return max(len(line) for line in [*_heading(row).split("\n"), *cells])


def _grid(table: Table, rows: Sequence[Row]) -> Grid:
    grid = Grid(box=box.SIMPLE_HEAD, title=f"Online error, % · {table.protocol.name}", title_style="bold")
    grid.add_column("", no_wrap=True)
    for row in rows:
        grid.add_column(Text(_heading(row), justify="right"), justify="right", no_wrap=True, vertical="bottom")
    for index, name in enumerate(table.domains):
        cells = [row.domains[index] for row in rows]
        last = index == len(table.domains) - 1
        grid.add_row(Text(name), *[_text(cell, error_text(cell.mean)) for cell in cells], end_section=last)
    for index, name in enumerate(table.summaries):
        cells = [row.summaries[index] for row in rows]
        grid.add_row(Text(name, style="bold"), *[_text(cell, _with_spread(cell)) for cell in cells])
    _add_facts(grid, table, rows)
    return grid


def _add_facts(grid: Grid, table: Table, rows: Sequence[Row]) -> None:
    if table.baseline:
        grid.add_row("vs source", *[difference_text(row.difference) for row in rows])
    for name in table.columns:
        if name not in _ALWAYS_SHOWN:
            grid.add_row(COLUMNS[name].heading, *[cell_text(row, name) for row in rows])
    costs = [cost_of(row) for row in rows]
    grid.add_section()
    grid.add_row("ms a step", *[milliseconds_text(cost.seconds) for cost in costs], style="dim")
    if any(cost.forward_cost for cost in costs):
        grid.add_row(_UNITS, *[units_text(cost.forward_cost) for cost in costs], style="dim")


def _heading(row: Row) -> str:
    told = [row.title, *row.distinction.replace("=", "=\n").split()]
    told += ["needs source"] if row.needs_train_data else []
    told += [] if row.finished else ["unfinished:", row.progress.removesuffix(" batches")]
    return "\n".join(told)


def _with_spread(cell: Cell) -> str:
    return error_text(cell.mean) + spread_text(cell.spread)


def _text(cell: Cell, text: str) -> Text:
    return Text(text, style=_STYLES[cell.mark])
