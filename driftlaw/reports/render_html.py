"""The report as one HTML file that opens from disk with no network: tables, figures, costs, settings, records."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from driftlaw.reports import format as wording
from driftlaw.reports.columns import cell_text, describe_columns, headings
from driftlaw.reports.cost import cost_of
from driftlaw.reports.figures import (
    LAYER_WEIGHTS,
    colour_index,
    draw_cost,
    draw_error_along_stream,
    draw_error_by_round,
    draw_layer_weights,
)
from driftlaw.reports.protocol import device_name
from driftlaw.reports.published_rows import compare_with_paper
from driftlaw.reports.summary import KEY_LINE, describe_differences, summarise
from driftlaw.reports.tables import Row, Table, make_run_row

_MOST_HEAT_MAPS = 4  # a page of a sweep would be mostly heat-maps otherwise


def render_html(tables: Sequence[Table], command: str | None) -> str:
    """Return the page; every name in it is escaped by the template."""
    sections = [_section(table, number) for number, table in enumerate(tables, start=1)]
    title = tables[0].protocol.name if len(tables) == 1 else f"Online error under {len(tables)} protocols"
    return _template().render(title=title, sections=sections, command=command, key_line=KEY_LINE)


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        short=wording.short_name,
        error=wording.error_text,
        printed=wording.paper_text,
        spread=wording.spread_text,
        difference=wording.difference_text,
        flops=wording.flops_text,
        size=wording.bytes_text,
        milliseconds=wording.milliseconds_text,
        units=wording.units_text,
        value=wording.value_text,
        svg=Markup,  # our own drawing: matplotlib has escaped its text
    )
    return environment.get_template("report.html")


def _section(table: Table, number: int) -> dict[str, Any]:
    heat_rows = _heat_map_rows(table)
    return {
        "number": number,
        "table": table,
        "summary": summarise(table),
        "differences": describe_differences(table),
        "comparison": compare_with_paper(table) if table.partner else None,
        "seeds": _seeds(table),
        "colours": [colour_index(table, row) for row in table.rows],
        "costs": [cost_of(row) for row in table.rows],
        "headings": headings(table),
        "measures": [[cell_text(row, name) for name in table.columns] for row in table.rows],
        "measures_key": describe_columns(table),
        "stream": draw_error_along_stream(table),
        "rounds": draw_error_by_round(table),
        "heat_maps": [picture for row in heat_rows[:_MOST_HEAT_MAPS] if (picture := draw_layer_weights(row))],
        "undrawn": [row.label for row in heat_rows[_MOST_HEAT_MAPS:]],
        "cost_bars": draw_cost(table),
        "runs": [_run(table, row, index) for row in table.rows for index in range(len(row.records))],
    }


def _seeds(table: Table) -> str:
    """Say how many seeds the rows have, once where they agree."""
    counts = {row.label: len(row.seeds) for row in table.rows if row.finished}
    if len(set(counts.values())) == 1:
        return f"Every row: {wording.counted(next(iter(counts.values())), 'seed', 'seeds')}."
    told = [f"{label} {wording.counted(count, 'seed', 'seeds')}" for label, count in counts.items()]
    return f"Seeds differ: {wording.listed(told)}." if told else ""


def _heat_map_rows(table: Table) -> list[Row]:
    """The rows whose method tells the weights of its layers, the best first, unfinished ones last."""
    best_first = [*table.ranked, *[row for row in table.rows if not row.finished]]
    return [row for row in best_first if any(LAYER_WEIGHTS in line["facts"] for line in row.first.batches)]


def _run(table: Table, row: Row, index: int) -> dict[str, Any]:
    record = row.records[index]
    versions = record.header.get("versions", {})
    return {
        "label": row.label,
        "seed": record.seed,
        "error": make_run_row(record, table).summaries[0].mean,
        "state": "finished" if record.finished else f"unfinished: {row.progress}",
        "seconds": (record.closing or {}).get("timing", {}).get("seconds"),
        "commit": record.header.get("commit"),
        "software": ", ".join(f"{name} {versions[name]}" for name in sorted(versions)),
        "device": device_name(record),
        "command": record.header.get("command") or "",
        "path": record.path.as_posix() if record.path else wording.MISSING,
    }
