"""The door of this room: records and a format in, a document out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from driftlaw.errors import unknown
from driftlaw.records import RunRecord
from driftlaw.reports.tables import Table, make_tables

FORMATS = ("html", "md", "latex", "csv", "json")

Renderer = Callable[[Sequence[Table], str | None], str]


def build_report(records: Iterable[RunRecord], format: str, *, command: str | None = None) -> str:
    """Return a report of the records; the same records and command give the same bytes.

    Args:
        records: runs, finished or not, in any order; those of different protocols go into different tables.
        format: one of ``FORMATS``.
        command: the command line that a reader can repeat, told in the report.

    Raises:
        UsageError: an unknown format, or no record.
        DataError: a damaged record.
    """
    check_format(format)
    return _renderer(format)(make_tables(records), command)


def check_format(format: str) -> None:
    """Raise UsageError with the nearest name unless ``format`` is one of ``FORMATS``."""
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)


def _renderer(format: str) -> Renderer:
    # Imported one by one: a CSV must not wait for matplotlib.
    if format == "html":
        from driftlaw.reports.page import render_html as render
    elif format == "md":
        from driftlaw.reports.markdown import render_markdown as render
    elif format == "latex":
        from driftlaw.reports.latex import render_latex as render
    elif format == "csv":
        from driftlaw.reports.data import render_csv as render
    else:
        from driftlaw.reports.data import render_json as render
    return render
