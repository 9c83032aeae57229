"""The door of this room: records and a format in, a document out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from driftlaw.errors import UsageError, unknown
from driftlaw.records import RunRecord
from driftlaw.reports.published_rows import PARTNERS
from driftlaw.reports.step_times import StepTimes, with_step_times
from driftlaw.reports.tables import Table, make_tables

FORMATS = ("html", "md", "brief", "latex", "csv", "json", "terminal")
COMPARING = ("html", "md", "brief", "json")
"""The formats that can show somebody else's figures beside ours."""

Renderer = Callable[[Sequence[Table], str | None], str]


def build_report(
    records: Iterable[RunRecord],
    format: str,
    *,
    command: str | None = None,
    columns: tuple[str, ...] = (),
    compare: str | None = None,
    times: StepTimes | None = None,
) -> str:
    """Return a report of the records; the same records and command give the same bytes.

    Args:
        records: runs, finished or not, in any order; those of different protocols go into different tables.
        format: one of ``FORMATS``.
        command: the command line that a reader can repeat, told in the report.
        columns: names of ``driftlaw.reports.columns.COLUMNS`` to show beside the errors; ``latex`` and
            ``brief`` have no place for them.
        compare: ``paper`` puts the paper's figures beside ours, in the formats of ``COMPARING``.
        times: a benchmark whose milliseconds are told in place of the records' own.

    Raises:
        UsageError: an unknown format, or no record.
        DataError: a damaged record.
    """
    check_format(format, compare)
    if columns and format in ("latex", "brief"):
        raise UsageError(f"a table in {format} has no place for more columns: leave out --columns, or take --format md")
    tables = with_step_times(make_tables(records), times)
    tables = [replace(table, columns=columns, partner=compare) for table in tables]
    return _renderer(format)(tables, command)


def check_format(format: str, compare: str | None = None) -> None:
    """Raise UsageError with the nearest name unless there is such a format, and such a partner to compare with."""
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    if compare is None:
        return
    if compare not in PARTNERS:
        raise unknown("partner to compare with", compare, PARTNERS)
    if format not in COMPARING:
        raise UsageError(f"--compare goes with --format {', '.join(COMPARING)}, not with {format}")


def _renderer(format: str) -> Renderer:
    # Imported one by one: a CSV must not wait for matplotlib.
    if format == "html":
        from driftlaw.reports.render_html import render_html as render
    elif format == "md":
        from driftlaw.reports.render_markdown import render_markdown as render
    elif format == "brief":
        from driftlaw.reports.render_markdown import render_brief as render
    elif format == "latex":
        from driftlaw.reports.render_latex import render_latex as render
    elif format == "terminal":
        from driftlaw.reports.render_terminal import render_text as render
    elif format == "csv":
        from driftlaw.reports.render_data import render_csv as render
    else:
        from driftlaw.reports.render_data import render_json as render
    return render
