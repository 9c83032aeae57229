"""Document model: what a report contains, independent of the format it is rendered to.

:mod:`driftlaw.reports.build` fills a document with text. Renderers only decide about layout and escaping.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Literal

from driftlaw.errors import printable


@dataclass(frozen=True)
class Cell:
    """One cell of a table.

    Attributes:
        text: The value as text.
        spread: The standard deviation as text (``" ± 0.06"``), or empty.
        mark: ``best`` (significantly lowest), ``lowest``, ``second`` or empty.
        details: Further lines in smaller type, such as the settings of a row.
        warning: A line that must stand out, such as the progress of an unfinished run.
        series: Index of the color that this row has in the figures, or None.
        row: Index of the result row that a label belongs to, by which a page hides methods; or None.
    """

    text: str
    spread: str = ""
    mark: str = ""
    details: tuple[str, ...] = ()
    warning: str = ""
    series: int | None = None
    row: int | None = None

    @property
    def value(self) -> str:
        """The text with its spread."""
        return self.text + self.spread

    @property
    def label(self) -> str:
        """The text with its details and warning on one line."""
        line = " ".join([self.text, *self.details])
        return f"{line} ({self.warning})" if self.warning else line


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        heading: Short heading.
        kind: What its cells contain: a ``label`` of the row, a ``number``, ``text``, a ``flag`` (yes or no),
            ``code``, or a ``list`` of code fragments.
        full_name: Unabbreviated heading, or empty.
        starts_group: True if a rule separates this column from the one before.
    """

    heading: str
    kind: Literal["label", "number", "text", "flag", "code", "list"] = "number"
    full_name: str = ""
    starts_group: bool = False


@dataclass(frozen=True)
class Table:
    """A table; the first column contains the labels of the rows.

    Attributes:
        title: What the table shows; used where a table needs a name, such as for screen readers.
        columns: The columns.
        rows: One tuple of cells per row, with one cell per column.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class Figure:
    """A figure.

    Attributes:
        svg: The drawing as an ``<svg>`` element whose colors are CSS variables of the page.
        caption: Caption.
        description: Description of the contents for readers who cannot see the figure.
        hover: Values that a page shows at the pointer, as JSON (:func:`driftlaw.reports.svg.hover_data`), or empty.
        row: Index of the result row that the whole figure belongs to, or None.
    """

    svg: str
    caption: str
    description: str
    hover: str = ""
    row: int | None = None


@dataclass(frozen=True)
class Samples:
    """Small images, each with its name and its PNG file as bytes."""

    images: tuple[tuple[str, bytes], ...]
    caption: str


@dataclass(frozen=True)
class Strips:
    """Images in rows that have the same columns, with a legend of classes.

    Attributes:
        headings: One heading per column.
        rows: Name of each row, and for every column an image file with the text below it, or None.
        legend: Name and CSS color of every class; the color is empty for pixels without a class, which are hatched.
        caption: Caption.
    """

    headings: tuple[Cell, ...]
    rows: tuple[tuple[str, tuple[tuple[bytes, str] | None, ...]], ...]
    legend: tuple[tuple[str, str], ...]
    caption: str


@dataclass(frozen=True)
class Note:
    """A paragraph.

    Attributes:
        text: The paragraph.
        kind: ``summary`` (the result in one sentence), ``caption`` (how to read a table), ``warning`` (what limits a
            comparison) or ``protocol`` (how the runs were made).
        items: The same as (name, value) pairs, for formats that have definition lists.
    """

    text: str
    kind: Literal["summary", "caption", "warning", "protocol"]
    items: tuple[tuple[str, str], ...] = ()


Block = Table | Figure | Samples | Strips | Note


@dataclass(frozen=True)
class Section:
    """A heading with tables, figures and notes in reading order, and subsections after them.

    A page shows the blocks of a ``folded`` section only on request.
    """

    title: str
    blocks: tuple[Block, ...]
    subsections: tuple[Section, ...] = ()
    key: str = ""
    folded: bool = False

    def walk(self) -> Iterator[Block]:
        """Iterate over the blocks of this section and of its subsections."""
        yield from self.blocks
        for section in self.subsections:
            yield from section.walk()

    def notes(self, kind: str) -> list[str]:
        """Return the text of all notes of one kind."""
        return [block.text for block in self.walk() if isinstance(block, Note) and block.kind == kind]


@dataclass(frozen=True)
class Document:
    """A report: a title, one section per protocol, the command that generates it again, and the dates of the runs."""

    title: str
    sections: tuple[Section, ...]
    command: str | None = None
    dates: str = ""


def printable_parts(part: Any) -> Any:
    """Return a document, or a part of one, with control characters in all of its text as escape sequences."""
    if isinstance(part, str):
        return printable(part)
    if isinstance(part, tuple):
        return tuple(map(printable_parts, part))
    if is_dataclass(part) and not isinstance(part, type):
        return replace(part, **{field.name: printable_parts(getattr(part, field.name)) for field in fields(part)})
    return part
