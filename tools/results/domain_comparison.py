"""Errors of every domain beside those of the paper, and beside runs on images that other code has corrupted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from driftlaw.reports.format import MISSING, difference_text, error_text, listed, paper_text
from driftlaw.reports.published import ComparedRow, Comparison
from driftlaw.reports.render_markdown import escape, grid
from driftlaw.reports.result_table import ResultRow, ResultTable

AGREEMENT = 3.0  # percentage points: what the project calls agreement on one corruption


def compare_domains(comparisons: Sequence[Comparison]) -> list[str]:
    """Return one Markdown table per model, and per method the domains that differ from the paper.

    A run on an archive, with the same model, method and number of images, gives one more column.
    """
    blocks = []
    for item in comparisons:
        lines = [line for line in item.rows if line.row.finished and line.published and line.published.errors]
        if not lines:
            continue
        others = {line.row.method: _archive_errors(line.row, comparisons) for line in lines}
        heading = ["corruption"]
        for line in lines:
            assert line.published is not None
            paper = "paper" if item.same_network else f"paper, {line.published.network}"
            heading += [escape(line.row.title), escape(paper), "difference", *map(escape, others[line.row.method])]
        rows = []
        for index, domain in enumerate(item.table.domains):
            cells = [escape(domain)]
            for line in lines:
                mean, published, difference = _domain(line, item.table, index)
                cells += [error_text(mean), paper_text(published), difference_text(difference)]
                columns = others[line.row.method].values()
                cells += [error_text(errors[domain]) if domain in errors else MISSING for errors in columns]
            rows.append(cells)
        images = lines[0].row.first.header["stream"]["images_per_domain"]
        blocks.append(f"### {escape(item.table.protocol.name)} · {images:,} images per corruption")
        blocks.append(grid(heading, rows, [index == 0 for index in range(len(heading))]))
        blocks.append(f"The standard error of an error on {images:,} images is at most {50 / math.sqrt(images):.1f}.")
        if item.same_network:
            blocks.append("\n".join(_agreement(line, item.table) for line in lines))
    return blocks


def _domain(line: ComparedRow, table: ResultTable, index: int) -> tuple[float | None, float | None, float | None]:
    """Return our error, the paper's, and the difference."""
    mean = line.row.domains[index].mean
    published = line.published.errors.get(table.domains[index]) if line.published else None
    return mean, published, None if mean is None or published is None else mean - published


def _agreement(line: ComparedRow, table: ResultTable) -> str:
    differences = {domain: _domain(line, table, index)[2] for index, domain in enumerate(table.domains)}
    far = [
        f"{domain} {difference_text(value)}"
        for domain, value in differences.items()
        if value is not None and abs(value) > AGREEMENT
    ]
    text = f"{line.row.title}: {len(differences) - len(far)} of {len(differences)} corruptions are within "
    text += f"{AGREEMENT:g} percentage points of the paper."
    return "- " + escape(f"{text} The others: {listed(far)}." if far else text)


def _archive_errors(row: ResultRow, comparisons: Sequence[Comparison]) -> dict[str, Mapping[str, float]]:
    """Return the errors per domain of the same run on archives, by the name of the archive."""
    found = {}
    for item in comparisons:
        for other in item.table.rows:
            archive = other.first.header["stream"].get("archive")
            if archive and other.finished and _run(other) == _run(row):
                errors = zip(item.table.domains, other.domains, strict=True)
                found[str(archive)] = {domain: value.mean for domain, value in errors if value.mean is not None}
    return found


def _run(row: ResultRow) -> tuple[object, ...]:
    header = row.first.header
    return row.method, row.settings, header["model"]["sha256"], header["stream"].get("images_per_domain"), row.seeds
