"""Tables as Markdown: best in bold, second underlined, the protocol under each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from driftlaw.reports.columns import cell_text, describe_columns, headings
from driftlaw.reports.cost import cost_of
from driftlaw.reports.format import (
    MISSING,
    bytes_text,
    counted,
    difference_text,
    error_text,
    flops_text,
    milliseconds_text,
    paper_text,
    short_name,
    spread_text,
    units_text,
)
from driftlaw.reports.published_rows import Compared, Comparison, compare_with_paper
from driftlaw.reports.summary import KEY_LINE, describe_differences, summarise
from driftlaw.reports.tables import Cell, Row, Table

OF_THE_PAPER = "the paper's settings"

_MARKS = {"best": "**{}**", "second": "<u>{}</u>", "": "{}"}
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|~#])")


def render_markdown(tables: Sequence[Table], command: str | None) -> str:
    """Return every table with its protocol, remarks and costs."""
    blocks = [block for table in tables for block in _blocks(table)]
    if command:
        blocks.append(f"Made from records by `{command.replace('`', '')}`.")
    return "\n\n".join(blocks) + "\n"


def render_brief(tables: Sequence[Table], command: str | None) -> str:
    """Return of every table a line a method: error, cost and, where asked for, the paper's figure; for a README."""
    blocks = []
    for table in map(_named_beside_paper, tables):
        title, finding = f"### {escaped(table.protocol.name)}", escaped(summarise(table))
        blocks += [title, finding, _brief_grid(table), f"Protocol: {escaped(table.protocol.line)}."]
        blocks += [f"Milliseconds a step: {escaped(table.timing)}."] if table.timing else []
    if command:
        blocks.append(f"Made from records by `{command.replace('`', '')}`.")
    return "\n\n".join(blocks) + "\n"


def _named_beside_paper(table: Table) -> Table:
    """Tell several rows of a method apart by what is not the paper's in them, where they stand beside the paper's."""
    if not table.partner:
        return table
    several = [row.method for row in table.rows]
    distinctions = {
        id(line.row): f"with {', '.join(line.remarks) or OF_THE_PAPER}"
        for line in compare_with_paper(table).rows
        if line.theirs and several.count(line.row.method) > 1
    }
    rows = [replace(row, distinction=distinctions.get(id(row), row.distinction)) for row in table.rows]
    return replace(table, rows=tuple(rows))


def _brief_grid(table: Table) -> str:
    heading = ["method", "source-free", "seeds", *(f"error, {escaped(name)}" for name in table.summaries)]
    heading += (["paper"] if table.partner else []) + ["FLOPs an image, a step", "ms a step"]
    rows = []
    for line in compare_with_paper(table).rows:
        row, cost = line.row, cost_of(line.row)
        theirs = line.theirs.summaries if line.theirs else ()
        paper = [" / ".join(paper_text(value) for value in theirs) or MISSING] if table.partner else []
        known = [escaped(row.label), "no" if row.needs_train_data else "yes", str(len(row.seeds))]
        costs = [flops_text(cost.step_flops), milliseconds_text(cost.seconds)]
        rows.append([*known, *map(marked_text, row.summaries), *paper, *costs])
    return grid(heading, rows, left=2)


def _blocks(table: Table) -> list[str]:
    notes = "\n".join(f"- {escaped(note)}" for note in table.notes)
    parts = [
        f"### {escaped(table.protocol.name)}",
        escaped(summarise(table)),
        *(comparison_blocks(compare_with_paper(table)) if table.partner else []),
        errors_grid(table),
        KEY_LINE,
        escaped(describe_differences(table)),
        f"Protocol: {escaped(table.protocol.line)}.",
        notes,
        measures_grid(table),
        escaped(describe_columns(table)),
        costs_grid(table),
    ]
    return [part for part in parts if part]


def comparison_blocks(comparison: Comparison) -> list[str]:
    """Return ours beside the paper's, a line a row, and under it what was not as in the paper."""
    line = escaped(comparison.line)
    return [_comparison_grid(comparison), line] if comparison.tables else [line]


def _comparison_grid(comparison: Comparison) -> str:
    heading = ["method", "seeds"]
    for name in comparison.table.summaries:
        heading += [f"ours, {escaped(name)}", f"paper, {escaped(name)}", "difference"]
    heading += ["forward FLOPs, paper", "FLOPs a step, ours", "settings not the paper's"]
    rows = [
        [escaped(line.row.label), str(len(line.row.seeds)), *_beside(line), *_operations(line), _remarks(line)]
        for line in comparison.rows
        if line.row.finished
    ]
    return grid(heading, rows, left=1)


def _beside(line: Compared) -> list[str]:
    cells = []
    for index, (cell, difference) in enumerate(zip(line.row.summaries, line.differences, strict=True)):
        value = line.theirs.summaries[index] if line.theirs and index < len(line.theirs.summaries) else None
        spread = line.theirs.spread if line.theirs and index == 0 else None
        cells += [marked_text(cell), paper_text(value) + spread_text(spread), difference_text(difference)]
    return cells


def _operations(line: Compared) -> list[str]:
    printed = 1e9 * line.theirs.gflops if line.theirs and line.theirs.gflops is not None else None
    return [flops_text(printed), flops_text(cost_of(line.row).step_flops)]


def _remarks(line: Compared) -> str:
    return escaped("; ".join(line.remarks)) or MISSING


def escaped(text: str) -> str:
    """Return text that Markdown prints as it stands, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def errors_grid(table: Table) -> str:
    """Return the error of every row in every domain."""
    difference = ["vs source"] if table.baseline else []
    names = [escaped(short_name(name)) for name in table.domains]
    heading = ["method", "source-free", *names, *map(escaped, table.summaries), *difference]
    rows = [
        [_label(row), "no" if row.needs_train_data else "yes"]
        + [_marked(cell, error_text(cell.mean)) for cell in row.domains]
        + [marked_text(cell) for cell in row.summaries]
        + ([difference_text(row.difference)] if difference else [])
        for row in table.rows
    ]
    return grid(heading, rows, left=2)


def _label(row: Row) -> str:
    state = counted(len(row.seeds), "seed", "seeds") if row.finished else f"unfinished: {row.progress}"
    return f"{escaped(row.label)} ({state})"


def marked_text(cell: Cell) -> str:
    """Return a mean with its spread, bold or underlined as its mark says."""
    return _marked(cell, error_text(cell.mean) + spread_text(cell.spread))


def _marked(cell: Cell, text: str) -> str:
    return _MARKS[cell.mark].format(text)


def measures_grid(table: Table) -> str:
    """Return the columns that were asked for, a table of their own; nothing where none were."""
    rows = [[escaped(row.label), *[cell_text(row, name) for name in table.columns]] for row in table.rows]
    return grid(["method", *headings(table)], rows, left=1) if table.columns else ""


def costs_grid(table: Table) -> str:
    """Return what a step of every row costs."""
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
                escaped(row.label),
                milliseconds_text(cost.seconds),
                units_text(cost.forward_cost),
                flops_text(cost.forward_flops),
                flops_text(cost.step_flops),
                bytes_text(cost.peak_bytes),
                escaped(cost.device),
            ]
        )
    return grid(heading, rows, left=1)


def grid(heading: Sequence[str], rows: Sequence[Sequence[str]], *, left: int) -> str:
    """Return a Markdown table; the first ``left`` columns are text, the rest numbers."""
    rule = ["---" if index < left else "---:" for index in range(len(heading))]
    return "\n".join("| " + " | ".join(line) + " |" for line in [heading, rule, *rows])
