"""Reports from records: result tables become a document, which is rendered to one of several formats."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

from driftlaw.errors import UsageError, unknown_name
from driftlaw.records import RunRecord
from driftlaw.reports import contents
from driftlaw.reports.columns import describe_columns, measured_columns
from driftlaw.reports.document import Block, Document, Figure, Note, Samples, Section, printable_parts
from driftlaw.reports.format import LABELS, listed, short_name
from driftlaw.reports.published import COMPARISONS, compare_with_paper
from driftlaw.reports.render_data import render_csv, render_json
from driftlaw.reports.render_html import render_html
from driftlaw.reports.render_latex import render_latex
from driftlaw.reports.render_markdown import render_markdown
from driftlaw.reports.render_terminal import TerminalReport, render_text
from driftlaw.reports.result_table import ResultRow, ResultTable
from driftlaw.reports.tables import make_tables

FORMATS = ("html", "md", "brief", "latex", "csv", "json", "terminal")
COMPARISON_FORMATS = ("html", "md", "brief", "json")
"""Formats that can show published results next to ours."""

_RENDERERS = {
    "html": render_html,
    "md": render_markdown,
    "brief": render_markdown,
    "latex": render_latex,
    "terminal": render_text,
}
_MAX_HEAT_MAPS = 4  # per table, so that the page of a parameter sweep stays readable
_MAX_OPEN_RECORDS = 10


def build_report(
    records: Iterable[RunRecord | ResultTable],
    format: str,
    *,
    command: str | None = None,
    columns: tuple[str, ...] = (),
    compare: str | None = None,
    samples: Mapping[str, Mapping[str, bytes]] | None = None,
) -> str:
    """Return a report of runs; the same records and command give the same bytes.

    Args:
        records: Runs, finished or not, in any order, or what :func:`make_tables` returned for them. Each protocol gets
            a table of its own.
        format: One of ``FORMATS``.
        command: Command line that generates the report; it is printed in the report.
        columns: Names of optional columns (``driftlaw.reports.columns.COLUMNS``); not for ``latex`` and ``brief``. If
            empty, ``html`` and ``md`` show the metrics that were measured.
        compare: ``paper`` to show published results next to ours, in the formats of ``COMPARISON_FORMATS``.
        samples: Images for a page, as PNG files by protocol key and name of the domain.

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
    items = list(records)
    tables = [item for item in items if isinstance(item, ResultTable)]
    tables = tables or make_tables(item for item in items if isinstance(item, RunRecord))
    if format == "csv":
        return render_csv(tables, columns)
    if format == "json":
        return render_json(tables, command, columns, compare=compare is not None)
    paper_tables = () if compare else None
    document = build_document(
        tables, format, columns, command=command, paper_tables=paper_tables, samples=samples or {}
    )
    return _RENDERERS[format](document)


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
    paper_tables = None if paper_table is None else (paper_table,)
    return TerminalReport(build_document(make_tables(records), "terminal", columns, paper_tables=paper_tables))


def build_document(
    tables: Sequence[ResultTable],
    format: str,
    columns: Sequence[str] = (),
    *,
    command: str | None = None,
    paper_tables: Sequence[int] | None = None,
    samples: Mapping[str, Mapping[str, bytes]] | None = None,
) -> Document:
    """Return what a report contains in a format, with one section per result table.

    Args:
        tables: Result tables.
        format: One of ``FORMATS``, except ``csv`` and ``json``.
        columns: Names of optional columns.
        command: Command line that generates the report.
        paper_tables: Tables of the paper to search first for published results, or None for no comparison.
        samples: Images for a page, by protocol key and name of the domain.
    """
    sections = []
    for table in tables:
        comparison = None if paper_tables is None else compare_with_paper(table, prefer=paper_tables)
        summary, protocol = Note(contents.summarize(table), "summary"), contents.protocol_note(table)
        warnings = [Note(note, "warning") for note in table.notes]
        paper_line = [Note(comparison.line, "caption")] if comparison else []
        shown = columns
        if not columns and format in ("html", "md"):
            shown = measured_columns(record for row in table.rows for record in row.records)
        metrics = [Note(describe_columns(table, shown), "caption")] if shown else []
        iou = contents.iou_tables(table)
        blocks: list[Block] = [summary, *warnings]
        parts: dict[str, list[Block]] = {}
        if comparison and format not in ("brief", "latex"):
            results = [contents.results_table(table, comparison)] if comparison.tables else []
            parts["Comparison with the paper"] = [*results, *paper_line]
        if format == "brief":
            blocks = [summary, contents.results_table(table, comparison), *paper_line, protocol]
        elif format == "latex":
            blocks = [contents.errors_table(table), Note(contents.KEY_LINE, "caption"), protocol, *warnings]
        elif format == "terminal":
            busy = [Note(note, "warning") for note in contents.timing_notes(table)]
            blocks = [
                contents.overview_table(table, columns),
                *(grid for grid, _ in iou),
                *blocks,
                *busy,
                *metrics,
                protocol,
            ]
        else:
            differences = contents.describe_differences(table)
            key_line = contents.PAGE_KEY_LINE if format == "html" else contents.KEY_LINE
            has_errors = any(value.mean is not None for row in table.rows for value in row.domains)
            captions = [Note(text, "caption") for text in (key_line, differences) if text and has_errors]
            parts["Error by domain"] = [contents.errors_table(table), *captions, protocol]
            parts["Intersection over union"] = [block for pair in iou for block in pair]
            parts["Additional metrics"] = [contents.metrics_table(table, shown), *metrics] if shown else []
            cost: list[Block] = [contents.costs_table(table), Note(contents.COST_KEY, "caption")]
            parts |= _page_parts(table, cost) if format == "html" else {"Cost": cost}
            if format == "html" and (images := (samples or {}).get(table.protocol.key)):
                named = tuple((short_name(name), image) for name, image in images.items())
                blocks.append(Samples(named, "One image of the stream in each of its domains."))
        folded = {texts["title"] for texts in LABELS["heat_maps"].values()}
        if sum(len(row.records) for row in table.rows) > _MAX_OPEN_RECORDS:
            folded.add("Records")
        subsections = [Section(title, tuple(inner), folded=title in folded) for title, inner in parts.items() if inner]
        sections.append(Section(table.protocol.name, tuple(blocks), tuple(subsections), table.protocol.key[:8]))
    document = Document(contents.page_title(tables), tuple(sections), command, contents.run_dates(tables))
    return cast("Document", printable_parts(document))


def _page_parts(table: ResultTable, cost: list[Block]) -> dict[str, list[Block]]:
    """Return the subsections that only a page has, and the cost with its figure."""
    from driftlaw.reports import figures, frames, heat_maps  # import matplotlib or Pillow

    best_first = [*table.ranked, *[row for row in table.rows if row not in table.ranked]]

    def maps(name: str, draw: Callable[[ResultRow], Figure | None]) -> list[Block | None]:
        having = [row for row in best_first if any(row.first.diagnostics(name))]
        drawn = [(table.rows.index(row), draw(row)) for row in having[:_MAX_HEAT_MAPS]]
        others = "; ".join(row.label for row in having[_MAX_HEAT_MAPS:])
        not_drawn = f"These rows are recorded but not drawn here: {others}."
        blocks = [replace(figure, row=index) if figure else None for index, figure in drawn]
        return [*blocks, Note(not_drawn, "caption") if others else None]

    parts: dict[str, list[Block | None]] = {
        "Frames": [frames.frame_strips(table)],
        "Error along the stream": [figures.draw_error_along_stream(table), figures.draw_error_by_round(table)],
        "Diagnostics without labels": [*figures.draw_diagnostics(table)],
    }
    for name, texts in LABELS["heat_maps"].items():
        parts[texts["title"]] = maps(name, partial(heat_maps.draw_diagnostic, name=name))
    busy = [Note(note, "warning") for note in contents.timing_notes(table)]
    parts |= {
        "Layer weights": maps(heat_maps.LAYER_WEIGHTS, heat_maps.draw_layer_weights),
        "Cost": [figures.draw_cost(table), *cost, *busy],
        "Settings": [contents.settings_table(table)],
        "Records": [contents.records_table(table)],
    }
    return {title: [block for block in blocks if block] for title, blocks in parts.items()}
