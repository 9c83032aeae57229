"""Collects the records, notes, claims and figures of every section of RESULTS.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from driftlaw.records import RunRecord, find_records, read_record
from driftlaw.reports.document import Figure
from driftlaw.reports.published import Comparison, compare_with_paper
from driftlaw.reports.result_table import ResultRow
from driftlaw.reports.tables import make_tables
from tools.results.claims import ClaimCheck
from tools.results.sections import SECTIONS, Section
from tools.results.step_times import read_step_times, with_step_times
from tools.results.tuning_summary import describe_tuning

NOTES = "notes.md"
"""Hand-written notes on a folder of records; they open the section."""
STEP_TIMES = "step-times.json"
"""Record of ``python -m benchmarks step`` with the step times for the tables of a folder."""


@dataclass(frozen=True)
class SectionContent:
    """What a section of the document contains.

    Attributes:
        section: the section.
        folders: folders in ``results/`` that its records are from.
        notes: paragraphs that open the section.
        comparisons: its tables, compared with the paper.
        checks: claims of the paper and whether they hold.
        figures: names and figures.
    """

    section: Section
    folders: tuple[str, ...]
    notes: tuple[str, ...]
    comparisons: tuple[Comparison, ...]
    checks: tuple[ClaimCheck, ...]
    figures: tuple[tuple[str, Figure], ...]

    @property
    def uses_fallback(self) -> bool:
        """True if the records are from another experiment."""
        return self.folders == (self.section.fallback,)

    @property
    def rows(self) -> list[ResultRow]:
        """Rows of all tables."""
        return [row for item in self.comparisons for row in item.table.rows]

    @property
    def records(self) -> list[RunRecord]:
        """Records of all tables, sorted by path."""
        return sorted((record for row in self.rows for record in row.records), key=lambda record: str(record.path))


def collect_sections(root: Path) -> list[SectionContent]:
    """Return the contents of all sections that have records.

    Raises:
        DataError: there are no records in ``results/``, or one is damaged.
    """
    paths: dict[str, list[Path]] = {}
    for path in find_records([root / "results"]):
        paths.setdefault(path.relative_to(root / "results").parts[0], []).append(path)
    return [_collect(root, section, folders, paths) for section, folders in _sections_with_records(paths)]


def _sections_with_records(paths: Mapping[str, list[Path]]) -> list[tuple[Section, tuple[str, ...]]]:
    """Return the sections that have records, with their folders. Folders without a section come last."""
    present = []
    for section in SECTIONS:
        folders = tuple(folder for folder in section.folders or (section.name,) if folder in paths)
        fallback = (section.fallback,) if section.fallback in paths else ()
        if folders or fallback:
            present.append((section, folders or fallback))
    known = {folder for section in SECTIONS for folder in (*section.folders, section.name)}
    return present + [(Section(name, f"`{name}`"), (name,)) for name in sorted(paths) if name not in known]


def _collect(root: Path, section: Section, names: Sequence[str], paths: Mapping[str, list[Path]]) -> SectionContent:
    records = [replace(read_record(path), path=path.relative_to(root)) for name in names for path in paths[name]]
    folders = [root / "results" / name for name in names]
    times = [read_step_times(folder / STEP_TIMES) for folder in folders if (folder / STEP_TIMES).is_file()]
    tables = with_step_times(make_tables(records), times[0] if times else None)
    comparisons = tuple(compare_with_paper(table, prefer=section.tables) for table in tables)
    notes = [(folder / NOTES).read_text(encoding="utf-8").strip() for folder in folders if (folder / NOTES).is_file()]
    return SectionContent(
        section,
        tuple(names),
        tuple(notes + [line for folder in folders for line in describe_tuning(root, folder)]),
        comparisons,
        tuple(section.check(comparisons)),
        tuple(
            (f"{section.name}-{name}" if name else section.name, figure)
            for name, figure in section.draw(comparisons)
            if figure is not None
        ),
    )
