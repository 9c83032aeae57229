"""Tables as Markdown: best in bold, second underlined, the protocol under each."""

from __future__ import annotations

import re
from collections.abc import Sequence

from driftlaw.reports.cost import cost_of
from driftlaw.reports.summary import KEY_LINE, summarise
from driftlaw.reports.tables import Cell, Row, Table
from driftlaw.reports.wording import (
    bytes_text,
    counted,
    difference_text,
    error_text,
    flops_text,
    milliseconds_text,
    short_name,
    spread_text,
    units_text,
)

_MARKS = {"best": "**{}**", "second": "<u>{}</u>", "": "{}"}
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|~#])")


def render_markdown(tables: Sequence[Table], command: str | None) -> str:
    """Return every table with its protocol, remarks and costs."""
    blocks = [block for table in tables for block in _blocks(table)]
    if command:
        blocks.append(f"Made from records by `{command.replace('`', '')}`.")
    return "\n\n".join(blocks) + "\n"


def _blocks(table: Table) -> list[str]:
    notes = "\n".join(f"- {_escaped(note)}" for note in table.notes)
    parts = [
        f"### {_escaped(table.protocol.name)}",
        _escaped(summarise(table)),
        _errors(table),
        KEY_LINE,
        f"Protocol: {_escaped(table.protocol.line)}.",
        notes,
        _costs(table),
    ]
    return [part for part in parts if part]


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _errors(table: Table) -> str:
    difference = ["vs source"] if table.baseline else []
    names = [_escaped(short_name(name)) for name in table.domains]
    heading = ["method", "source-free", *names, *map(_escaped, table.summaries), *difference]
    rows = [
        [_label(row), "no" if row.needs_source else "yes"]
        + [_marked(cell, error_text(cell.mean)) for cell in row.domains]
        + [_marked(cell, error_text(cell.mean) + spread_text(cell.spread)) for cell in row.summaries]
        + ([difference_text(row.difference)] if difference else [])
        for row in table.rows
    ]
    return _grid(heading, rows, left=2)


def _label(row: Row) -> str:
    state = counted(len(row.seeds), "seed", "seeds") if row.finished else f"unfinished: {row.progress}"
    return f"{_escaped(row.label)} ({state})"


def _marked(cell: Cell, text: str) -> str:
    return _MARKS[cell.mark].format(text)


def _costs(table: Table) -> str:
    heading = [
        "method",
        "ms a step",
        "forward passes a step",
        "FLOPs an image, one forward",
        "FLOPs an image, a step",
        "peak memory",
        "device",
    ]
    rows = []
    for row in table.rows:
        cost = cost_of(row)
        rows.append(
            [
                _escaped(row.label),
                milliseconds_text(cost.seconds),
                units_text(cost.forward_units),
                flops_text(cost.forward_flops),
                flops_text(cost.step_flops),
                bytes_text(cost.peak_bytes),
                _escaped(cost.device),
            ]
        )
    return _grid(heading, rows, left=1)


def _grid(heading: Sequence[str], rows: Sequence[Sequence[str]], *, left: int) -> str:
    rule = ["---" if index < left else "---:" for index in range(len(heading))]
    return "\n".join("| " + " | ".join(line) + " |" for line in [heading, rule, *rows])
