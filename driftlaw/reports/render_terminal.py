"""Terminal renderer: one line per domain and one column per method, split into several tables if necessary."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from driftlaw.reports.document import Cell, Document, Note, Table

_STYLES = {"best": "bold green", "lowest": "underline", "second": "underline", "": ""}
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
            yield _transposed_grid(table, rows)
            rows, used = [], left
        rows.append(row)
        used += needed
    yield _transposed_grid(table, rows)


def _transposed_grid(table: Table, rows: Sequence[tuple[Cell, ...]]) -> Grid:
    grid = _empty_grid(table.title, [("", True), *(("\n".join(_heading(row[0])), False) for row in rows)])
    for index, column in enumerate(table.columns[1:], start=1):
        if column.starts_group:
            grid.add_section()
        grid.add_row(Text(column.heading), *[_text(row[index]) for row in rows])
    return grid


def _plain_grid(table: Table) -> Grid:
    grid = _empty_grid(table.title, [(column.heading, column.kind in ("label", "text")) for column in table.columns])
    for row in table.rows:
        grid.add_row(Text(row[0].label), *map(_text, row[1:]))
    return grid


def _empty_grid(title: str, columns: Sequence[tuple[str, bool]]) -> Grid:
    grid = Grid(box=box.SIMPLE_HEAD, title=Text(title), title_style="bold")
    for heading, left in columns:
        justify: Literal["left", "right"] = "left" if left else "right"
        grid.add_column(Text(heading, justify=justify), justify=justify, no_wrap=not left, vertical="bottom")
    return grid


def _text(cell: Cell) -> Text:
    return Text(cell.value, style=_STYLES[cell.mark])


def _heading(cell: Cell) -> list[str]:
    lines = [cell.text, *" ".join(cell.details).replace("=", "=\n").split()]
    return lines + cell.warning.removesuffix(" batches").replace(": ", ":\n").splitlines()
