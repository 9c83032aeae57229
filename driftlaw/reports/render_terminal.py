"""Terminal renderer: one line per domain and one column per method, split into several tables if necessary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from driftlaw.records import RunRecord
from driftlaw.reports.build import build_document
from driftlaw.reports.document import Cell, Document, Note, Table
from driftlaw.reports.tables import make_tables

_STYLES = {"best": "bold green", "second": "underline", "": ""}
_NOTE_STYLES = {"summary": "bold", "warning": "yellow", "caption": "dim", "protocol": "dim"}
_GAP = 3  # characters between two columns of a grid


@dataclass(frozen=True)
class TerminalReport:
    """A document that ``rich`` can print, fitted to the width of the console."""

    document: Document

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        for section in self.document.sections:
            for block in section.walk():
                if isinstance(block, Table) and block in section.blocks:
                    yield from _grids(block, options.max_width)
                elif isinstance(block, Table):
                    yield _plain_grid(block)
                elif isinstance(block, Note):
                    yield Padding(Text(block.text, style=_NOTE_STYLES[block.kind]), (0, 1))
            yield ""


def render_terminal(
    records: Iterable[RunRecord], columns: tuple[str, ...] = (), *, paper_table: int | None = None
) -> TerminalReport:
    """Return the tables of records for ``rich`` to print.

    Args:
        records: Runs, finished or not.
        columns: Names of optional columns, shown as further lines.
        paper_table: Number of a table of the paper to compare with, or None for no comparison.

    Example:
        >>> from rich.console import Console
        >>> Console().print(render_terminal(records))  # doctest: +SKIP
    """
    compare, prefer = (None, ()) if paper_table is None else ("paper", (paper_table,))
    tables = make_tables(records)
    return TerminalReport(build_document(tables, "terminal", columns=columns, compare=compare, prefer=prefer))


def render_text(document: Document) -> str:
    """Return a document as plain text, as wide as the terminal or as the environment variable ``COLUMNS`` says."""
    console = Console(color_system=None)
    with console.capture() as captured:
        console.print(TerminalReport(document))
    return captured.get()


def _grids(table: Table, width: int) -> Iterator[Grid]:
    """Yield the table with rows and columns exchanged, with as many columns per grid as the width allows."""
    left = max(len(column.heading) for column in table.columns) + _GAP
    rows: list[tuple[Cell, ...]] = []
    used = left
    for row in table.rows:
        needed = max(len(line) for line in [*_heading(row[0]), *(cell.value for cell in row[1:])]) + _GAP
        if rows and used + needed > width:
            yield _grid(table, rows)
            rows, used = [], left
        rows.append(row)
        used += needed
    yield _grid(table, rows)


def _grid(table: Table, rows: Sequence[tuple[Cell, ...]]) -> Grid:
    grid = Grid(box=box.SIMPLE_HEAD, title=Text(table.title), title_style="bold")
    grid.add_column("", no_wrap=True)
    for row in rows:
        heading = Text("\n".join(_heading(row[0])), justify="right")
        grid.add_column(heading, justify="right", no_wrap=True, vertical="bottom")
    for index, column in enumerate(table.columns[1:], start=1):
        if column.starts_group:
            grid.add_section()
        grid.add_row(Text(column.heading), *[Text(row[index].value, style=_STYLES[row[index].mark]) for row in rows])
    return grid


def _plain_grid(table: Table) -> Grid:
    grid = Grid(box=box.SIMPLE_HEAD, title=Text(table.title), title_style="bold")
    for column in table.columns:
        grid.add_column(Text(column.heading), justify="left" if column.kind in ("label", "text") else "right")
    for row in table.rows:
        grid.add_row(Text(row[0].label), *[Text(cell.value, style=_STYLES[cell.mark]) for cell in row[1:]])
    return grid


def _heading(cell: Cell) -> list[str]:
    lines = [cell.text, *" ".join(cell.details).replace("=", "=\n").split()]
    return lines + cell.warning.removesuffix(" batches").replace(": ", ":\n").splitlines()
