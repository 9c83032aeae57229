"""RESULTS.md: everything under ``results/`` as one document, each number with its record, and its figures as SVG."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from benchmarks.report_figures import as_file
from driftlaw.records import RunRecord, find_records, read_record
from driftlaw.reports.columns import COLUMNS, column_values, describe_columns
from driftlaw.reports.contents import KEY_LINE, costs_table, errors_table, metrics_table, summarize, value_cell
from driftlaw.reports.document import Figure
from driftlaw.reports.format import (
    MISSING,
    counted,
    difference_text,
    flops_text,
    interval_text,
    listed,
    milliseconds_text,
    paper_text,
    spread_text,
)
from driftlaw.reports.published import ComparedRow, Comparison, compare_with_paper, paper_table
from driftlaw.reports.render_markdown import escape, grid, markdown_cell, markdown_table
from driftlaw.reports.result_table import ResultRow, ResultTable
from driftlaw.reports.tables import make_tables
from tools.results.claims import Finding
from tools.results.commands import tidy_command
from tools.results.sections import CHAPTERS, PLAIN, Chapter
from tools.results.step_times import read_step_times, with_step_times
from tools.results.tuning_summary import describe_choices

FIGURES = PurePosixPath("results/figures")
NOTES = "notes.md"
"""What a person has to say of a folder of records; it opens the section."""
STEP_TIMES = "step-times.json"
"""A record of ``driftlaw bench step`` that the milliseconds of a folder's tables come from."""

_MORE_THAN_ERROR = ("first_round", "last_round", "ece", "clean", "worst", "recovery", "drift")
_MOST_COMMANDS = 4


@dataclass(frozen=True)
class Results:
    """The document, and its figures by their path beside it."""

    text: str
    figures: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Section:
    chapter: Chapter
    folders: tuple[str, ...]
    notes: tuple[str, ...]
    comparisons: tuple[Comparison, ...]
    findings: tuple[Finding, ...]
    pictures: tuple[tuple[str, Figure], ...]

    @property
    def borrowed(self) -> bool:
        return self.folders == (self.chapter.instead,)

    @property
    def records(self) -> list[RunRecord]:
        rows = [row for item in self.comparisons for row in item.table.rows]
        return sorted((record for row in rows for record in row.records), key=lambda record: str(record.path))


def make_results(root: Path) -> Results:
    """Return RESULTS.md of the checkout at ``root``; the same records give the same bytes.

    Raises:
        DataError: no record lies under ``results/``, or one is damaged.
    """
    paths = _by_folder(root)
    chapters = _chapters(paths)
    sections = [_section(root, chapter, folders, paths) for chapter, folders in chapters]
    figures = {_figure_path(name): as_file(picture) for section in sections for name, picture in section.pictures}
    missing = [chapter for chapter in CHAPTERS if chapter.name not in {one.name for one, _ in chapters} | set(PLAIN)]
    blocks = [*_opening(sections), *(block for section in sections for block in _blocks(section)), _ending(missing)]
    return Results("\n\n".join(blocks) + "\n", figures)


def _by_folder(root: Path) -> dict[str, list[Path]]:
    """Return the records under ``results/`` by the folder there that holds them."""
    grouped: dict[str, list[Path]] = {}
    for path in find_records([root / "results"]):
        grouped.setdefault(path.relative_to(root / "results").parts[0], []).append(path)
    return grouped


def _chapters(paths: Mapping[str, list[Path]]) -> list[tuple[Chapter, tuple[str, ...]]]:
    """Return the chapters for which there are records, with their folders; folders that nobody knows come last."""
    found = []
    for chapter in CHAPTERS:
        own = tuple(folder for folder in chapter.folders or (chapter.name,) if folder in paths)
        instead = (chapter.instead,) if chapter.instead in paths else ()
        if own or instead:
            found.append((chapter, own or instead))
    known = {folder for chapter in CHAPTERS for folder in (*chapter.folders, chapter.name)}
    return found + [(Chapter(name, f"`{name}`"), (name,)) for name in sorted(paths) if name not in known]


def _section(root: Path, chapter: Chapter, folders: Sequence[str], paths: Mapping[str, list[Path]]) -> _Section:
    records = [replace(read_record(path), path=path.relative_to(root)) for folder in folders for path in paths[folder]]
    places = [root / "results" / folder for folder in folders]
    times = [read_step_times(place / STEP_TIMES) for place in places if (place / STEP_TIMES).is_file()]
    tables = with_step_times(make_tables(records), times[0] if times else None)
    comparisons = tuple(compare_with_paper(table, prefer=chapter.tables) for table in tables)
    pictures = [(name, picture) for name, picture in chapter.draw(comparisons) if picture is not None]
    notes = [(place / NOTES).read_text(encoding="utf-8").strip() for place in places if (place / NOTES).is_file()]
    return _Section(
        chapter,
        tuple(folders),
        tuple(notes + [line for place in places for line in describe_choices(root, place)]),
        comparisons,
        tuple(chapter.judge(comparisons)),
        tuple((_figure_name(chapter, name), picture) for name, picture in pictures),
    )


def _figure_name(chapter: Chapter, name: str) -> str:
    return f"{chapter.name}-{name}" if name else chapter.name


def _figure_path(name: str) -> str:
    return str(FIGURES / f"{name}.svg")


# --- the document ----------------------------------------------------------------------------------------------------


def _opening(sections: Sequence[_Section]) -> list[str]:
    runs = len({record.path for section in sections for record in section.records})
    devices = sorted({row.cost.device for section in sections for row in _rows(section)})
    lines = [
        "# Results",
        f"Made by `make documents` from the {runs:,} records in [results](results); nothing here is typed. Errors are "
        "online errors in per cent, every image answered when it arrived; lower is better. A number behind ± is the "
        "standard deviation over seeds (n − 1), and the seeds of a row lead to its records. «Above the lowest» is the "
        "paired difference over domains and seeds with its 95 % bootstrap interval; the lowest is bold only where the "
        "interval against every other row leaves zero out. FLOPs are those of a whole step, forward and backward, an "
        "image; the paper counts forward passes alone.",
        f"Hardware: {escape(listed(devices))}.",
        "\n".join(f"- [{section.chapter.title}](#{_anchor(section.chapter.title)})" for section in sections),
    ]
    verdicts = [(section, found) for section in sections for found in section.findings]
    if verdicts:
        held = sum(found.holds for _, found in verdicts)
        rows = [
            [
                f"[{section.chapter.name}](#{_anchor(section.chapter.title)})",
                escape(found.claim),
                _verdict(found),
            ]
            for section, found in verdicts
        ]
        lines += [
            "## What was claimed, and whether it holds",
            f"{held} of {counted(len(verdicts), 'claim')} {'holds' if held == 1 else 'hold'}; the numbers "
            "stand in the sections.",
            grid(["where", "claim", "verdict"], rows, [True] * 3),
        ]
    return lines


def _anchor(title: str) -> str:
    """Return the anchor that a heading gets where Markdown is shown.

    >>> _anchor("Table 4: the weight λ of the `loss`, again")
    'table-4-the-weight-λ-of-the-loss-again'
    """
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _verdict(found: Finding) -> str:
    return found.verdict if found.holds else f"**{found.verdict}**"


def _blocks(section: _Section) -> list[str]:
    chapter = section.chapter
    blocks = [f"## {chapter.title}", *section.notes, *_commands(section), *_about_paper(chapter)]
    if chapter.tabled:
        blocks += [block for item in section.comparisons for block in _table_blocks(item, chapter.setting)]
    if section.findings:
        told = [f"- {_verdict(found)}: {escape(found.claim)} ({escape(found.evidence)})." for found in section.findings]
        blocks += ["Claims held against these records:", "\n".join(told)]
    for name, picture in section.pictures:
        told_in_short = picture.description.partition(". ")[0]
        blocks += [
            f"![{escape(told_in_short)}]({_figure_path(name)})",
            f"*{escape(picture.caption)}*",
        ]
    if section.borrowed:
        blocks.append(f"Drawn from the records of {chapter.instead}.")
    elif not chapter.tabled:
        protocols = dict.fromkeys(item.table.protocol.line for item in section.comparisons)
        blocks += ["\n".join(f"- Protocol: {escape(line)}." for line in protocols), _record_list(section)]
    return [block for block in blocks if block]


def _commands(section: _Section) -> list[str]:
    commands = sorted({told for record in section.records if (told := tidy_command(record.header.get("command")))})
    if not commands:
        return []
    block = "```sh\n" + "\n".join(commands) + "\n```"
    if len(commands) <= _MOST_COMMANDS:
        return [block]
    return [_folded(f"{len(commands)} commands", [block])]


def _about_paper(chapter: Chapter) -> list[str]:
    tables = [paper_table(number) for number in chapter.tables]
    return [f"Table {table.number} of the paper. {table.about}" for table in tables] + [
        f"The paper's own figures disagree here: {escape(remark)}" for table in tables for remark in table.remarks
    ]


def _table_blocks(item: Comparison, setting: str) -> list[str]:
    table = item.table
    columns = [name for name in _MORE_THAN_ERROR if any(column_values(row, name) for row in table.rows)]
    metrics = [markdown_table(metrics_table(table, columns)) if columns else ""]
    metrics.append(escape(describe_columns(table, columns)))
    requested = any(COLUMNS[name].requires for name in columns)
    costs = markdown_table(costs_table(table))
    detail = [markdown_table(errors_table(table)), KEY_LINE, *([] if requested else metrics), costs]
    return [
        f"### {escape(' · '.join([table.protocol.name, *_what_tells(table)]))}",
        escape(summarize(table)),
        _results_grid(item, setting),
        escape(item.line),
        f"Protocol: {escape(table.protocol.line)}.",
        "\n".join(f"- {escape(note)}" for note in table.notes),
        *(metrics if requested else []),
        _folded("Every domain, and what a step costs", detail),
    ]


def _folded(summary: str, blocks: Sequence[str]) -> str:
    inner = "\n\n".join(block for block in blocks if block)
    return f"<details><summary>{summary}</summary>\n\n{inner}\n\n</details>"


def _what_tells(table: ResultTable) -> list[str]:
    """Return what a heading says beyond dataset, schedule and network: order, rounds and batches, where unusual."""
    stream = table.rows[0].first.header["stream"]
    told = []
    if stream.get("order") not in (None, "shuffled"):
        told.append(f"{stream['order']} order")
    if stream.get("rounds") not in (None, 1):
        told.append(f"{stream['rounds']} rounds")
    if len(table.domains) == 1:
        told.append(table.domains[0])
    if stream.get("batch_size"):
        told.append(f"batches of {stream['batch_size']}")
    return told


def _results_grid(item: Comparison, setting: str) -> str:
    """Return a line a row: ours, the paper's, how far from the lowest, and what a step costs."""
    compared = item.same_network
    heading = ["method", "seeds"]
    for name in item.table.summary_names:
        heading += [f"ours, {escape(name)}", *(["paper", "difference"] if compared else [])]
    printed = compared and any(line.published and line.published.gflops for line in item.rows)
    heading += ["above the lowest", *(["forward FLOPs, paper"] if printed else []), "FLOPs a step", "ms a step"]
    told = compared and any(line.setting_differences for line in item.rows)
    lines = sorted((line for line in item.rows if line.row.finished), key=lambda line: _value(line, setting))
    rows = [_line(line, compared, printed) + ([_remarks(line)] if told else []) for line in lines]
    heading += ["settings not the paper's"] if told else []
    return grid(heading, rows, [index < 2 for index in range(len(heading))]) if rows else ""


def _value(line: ComparedRow, setting: str) -> float:
    """Return where a row stands in a sweep; rows that tell no such value keep their places, first."""
    value = line.row.settings.get(setting)
    return float(value) if isinstance(value, int | float) else float("-inf")


def _line(line: ComparedRow, compared: bool, printed: bool) -> list[str]:
    row = line.row
    cells = [escape(row.label), _seeds(row)]
    for index, (cell, gap) in enumerate(zip(row.summaries, line.differences, strict=True)):
        cells.append(markdown_cell(value_cell(cell)))
        if compared:
            value = line.summaries[index]
            spread = line.published.spread if line.published and index == 0 else None
            cells += [paper_text(value) + spread_text(spread), difference_text(gap)]
    cells.append(interval_text(row.vs_best))
    if printed:
        gflops = line.published.gflops if line.published else None
        cells.append(flops_text(None if gflops is None else 1e9 * gflops))
    return [*cells, flops_text(row.cost.step_flops), milliseconds_text(row.cost.seconds)]


def _remarks(line: ComparedRow) -> str:
    return escape("; ".join(line.setting_differences)) or MISSING


def _seeds(row: ResultRow) -> str:
    return " ".join(_link(str(record.seed), record) for record in row.records)


def _link(text: str, record: RunRecord) -> str:
    place = record.path.as_posix().replace(" ", "%20").replace("+", "%2B") if record.path else ""
    return f"[{text}]({place})" if place else text


def _record_list(section: _Section) -> str:
    links = [_link(record.path.name if record.path else MISSING, record) for record in section.records]
    return f"Records: {listed(links)}."


def _rows(section: _Section) -> Iterable[ResultRow]:
    return (row for item in section.comparisons for row in item.table.rows)


def _ending(missing: Sequence[Chapter]) -> str:
    if not missing:
        return "Nothing that the paper shows is left to run."
    return f"Not run yet: {listed([f'`driftlaw reproduce {chapter.name}`' for chapter in missing])}."
