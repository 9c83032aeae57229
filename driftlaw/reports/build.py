"""Reports from records: result tables become a document, which is rendered to one of several formats."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from driftlaw.errors import UsageError, unknown_name
from driftlaw.records import RunRecord
from driftlaw.reports import contents
from driftlaw.reports.columns import describe_columns
from driftlaw.reports.document import Block, Document, Note, Section
from driftlaw.reports.format import listed
from driftlaw.reports.published import COMPARISONS, Comparison, compare_with_paper
from driftlaw.reports.result_table import ResultTable
from driftlaw.reports.tables import make_tables

FORMATS = ("html", "md", "brief", "latex", "csv", "json", "terminal")
COMPARISON_FORMATS = ("html", "md", "brief", "json")
"""Formats that can show published results next to ours."""

_MAX_HEAT_MAPS = 4  # per table, so that the page of a parameter sweep stays readable


def build_report(
    records: Iterable[RunRecord],
    format: str,
    *,
    command: str | None = None,
    columns: tuple[str, ...] = (),
    compare: str | None = None,
) -> str:
    """Return a report of runs; the same records and command give the same bytes.

    Args:
        records: Runs, finished or not, in any order. Each protocol gets a table of its own.
        format: One of ``FORMATS``.
        command: Command line that generates the report; it is printed in the report.
        columns: Names of optional columns (``driftlaw.reports.columns.COLUMNS``); not for ``latex`` and ``brief``.
        compare: ``paper`` to show published results next to ours, in the formats of ``COMPARISON_FORMATS``.

    Raises:
        UsageError: If the format is unknown or there are no records.
        DataError: If a record is damaged.

    Example:
        >>> from pathlib import Path
        >>> from driftlaw.records import find_records, read_record
        >>> records = map(read_record, find_records([Path("runs")]))  # doctest: +SKIP
        >>> print(build_report(records, "md"))  # doctest: +SKIP
    """
    check_format(format, compare=compare, columns=columns)
    return render_report(make_tables(records), format, command=command, columns=columns, compare=compare)


def check_format(format: str, *, compare: str | None = None, columns: Sequence[str] = ()) -> None:
    """Raise UsageError if a format is unknown or cannot show what is requested."""
    if format not in FORMATS:
        raise unknown_name("format", format, FORMATS)
    if columns and format in ("latex", "brief"):
        raise UsageError(f"Format {format} has no optional columns. Omit --columns, or use --format md.")
    if compare is not None and compare not in COMPARISONS:
        raise unknown_name("comparison", compare, COMPARISONS)
    if compare is not None and format not in COMPARISON_FORMATS:
        raise UsageError(f"Format {format} has no comparison. Use --compare with {listed(COMPARISON_FORMATS)}.")


def render_report(
    tables: Sequence[ResultTable],
    format: str,
    *,
    command: str | None = None,
    columns: tuple[str, ...] = (),
    compare: str | None = None,
) -> str:
    """Return result tables as text in one of ``FORMATS``; arguments as in :func:`build_report`."""
    # Renderers are imported when needed, so that CSV does not wait for matplotlib.
    if format == "csv":
        from driftlaw.reports.render_data import render_csv

        return render_csv(tables, columns)
    if format == "json":
        from driftlaw.reports.render_data import render_json

        return render_json(tables, command, columns, compare=compare is not None)
    document = build_document(tables, format, command=command, columns=columns, compare=compare)
    if format == "html":
        from driftlaw.reports.render_html import render_html as render
    elif format == "latex":
        from driftlaw.reports.render_latex import render_latex as render
    elif format == "terminal":
        from driftlaw.reports.render_terminal import render_text as render
    else:
        from driftlaw.reports.render_markdown import render_markdown as render
    return render(document)


def build_document(
    tables: Sequence[ResultTable],
    format: str,
    *,
    command: str | None = None,
    columns: Sequence[str] = (),
    compare: str | None = None,
    prefer: Sequence[int] = (),
) -> Document:
    """Return what a report contains in a format, with one section per result table.

    Arguments are as in :func:`build_report`; ``prefer`` as in :func:`~driftlaw.reports.published.compare_with_paper`.
    """
    sections = []
    for table in tables:
        comparison = compare_with_paper(table, prefer=prefer) if compare else None
        blocks: list[Block] = []
        parts: list[tuple[str, list[Block]]] = []
        summary, protocol = Note(contents.summarize(table), "summary"), contents.protocol_note(table)
        warnings = [Note(note, "warning") for note in table.notes]
        if format == "brief":
            compared = [Note(comparison.line, "caption")] if comparison else []
            blocks = [summary, contents.results_table(table, comparison), *compared, protocol]
        elif format == "latex":
            blocks = [contents.errors_table(table), Note(contents.KEY_LINE, "caption"), protocol, *warnings]
        elif format == "terminal":
            caption = [Note(describe_columns(table, columns), "caption")] if columns else []
            blocks = [contents.overview_table(table, columns), summary, *warnings, *caption, protocol]
            parts = _comparison_part(comparison)
        else:
            blocks, parts = [summary, *warnings], _parts(table, comparison, columns, page=format == "html")
        subsections = [Section(title, tuple(inner)) for title, inner in parts if inner]
        sections.append(Section(table.protocol.name, tuple(blocks), tuple(subsections), table.protocol.key[:8]))
    title = sections[0].title if len(sections) == 1 else f"Online error under {len(sections)} protocols"
    return Document(title, tuple(sections), command)


def _parts(
    table: ResultTable, comparison: Comparison | None, columns: Sequence[str], *, page: bool
) -> list[tuple[str, list[Block]]]:
    """Return the titles and blocks of the subsections; a page also has figures, settings and records."""
    parts = _comparison_part(comparison)
    errors: list[Block] = [contents.errors_table(table), Note(contents.KEY_LINE, "caption")]
    differences = contents.describe_differences(table)
    errors += [Note(differences, "caption")] if differences else []
    parts.append(("Error by domain", [*errors, contents.protocol_note(table)]))
    if columns:
        caption = Note(describe_columns(table, columns), "caption")
        parts.append(("Additional metrics", [contents.metrics_table(table, columns), caption]))
    cost: list[Block] = [contents.costs_table(table), Note(contents.COST_KEY, "caption")]
    if not page:
        return [*parts, ("Cost", cost)]

    from driftlaw.reports.figures import (
        LAYER_WEIGHTS,
        draw_cost,
        draw_error_along_stream,
        draw_error_by_round,
        draw_layer_weights,
    )

    along = [figure for figure in (draw_error_along_stream(table), draw_error_by_round(table)) if figure]
    best_first = [*table.ranked, *[row for row in table.rows if not row.finished]]
    with_weights = [row for row in best_first if row.first.diagnostics(LAYER_WEIGHTS)]
    heat_maps: list[Block] = [figure for row in with_weights[:_MAX_HEAT_MAPS] if (figure := draw_layer_weights(row))]
    if with_weights[_MAX_HEAT_MAPS:]:
        labels = "; ".join(row.label for row in with_weights[_MAX_HEAT_MAPS:])
        heat_maps.append(Note(f"Layer weights of these rows are recorded but not drawn here: {labels}.", "caption"))
    bars = [figure for figure in (draw_cost(table),) if figure]
    return [
        *parts,
        ("Error along the stream", [*along]),
        ("Layer weights", heat_maps),
        ("Cost", [*bars, *cost]),
        ("Settings", [contents.settings_table(table)]),
        ("Records", [contents.records_table(table)]),
    ]


def _comparison_part(comparison: Comparison | None) -> list[tuple[str, list[Block]]]:
    if comparison is None:
        return []
    table: list[Block] = [contents.results_table(comparison.table, comparison)] if comparison.tables else []
    return [("Comparison with the paper", [*table, Note(comparison.line, "caption")])]
