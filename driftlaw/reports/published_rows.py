"""Ours beside the paper's: which printed figure a row may stand beside, the difference, and what was not as there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from driftlaw.reports.format import counted, listed, value_text
from driftlaw.reports.published_tables import PaperDataset, PaperRow, paper_protocol, paper_table
from driftlaw.reports.tables import Row, Table

PARTNERS = ("paper",)
LAW = "law"
_ORDER = (1, 2, 6, 7, 8, 3, 10, 5, 4, 9)
"""Where a figure is looked for: the main tables first, those that vary a setting last."""


@dataclass(frozen=True)
class Compared:
    """A row of ours and the paper's figure for it.

    Attributes:
        row: ours.
        theirs: the paper's, None where it prints none.
        remarks: how this row's settings part from the paper's.
    """

    row: Row
    theirs: PaperRow | None
    remarks: tuple[str, ...] = ()

    @property
    def differences(self) -> tuple[float | None, ...]:
        """Ours less theirs in points, a summary column each; None where either is missing."""
        theirs = self.theirs.summaries if self.theirs else ()
        padded = [*theirs, *[None] * (len(self.row.summaries) - len(theirs))]
        return tuple(
            None if cell.mean is None or value is None else cell.mean - value
            for cell, value in zip(self.row.summaries, padded, strict=False)
        )


@dataclass(frozen=True)
class Comparison:
    """A table of ours beside the paper.

    Attributes:
        table: ours.
        dataset: the paper's name for what it ran on, None where the paper has no such stream.
        rows: a line a row of ours.
        departures: what was not as in the paper, for all rows.
    """

    table: Table
    dataset: str | None
    rows: tuple[Compared, ...]
    departures: tuple[str, ...]

    @property
    def tables(self) -> list[int]:
        """The numbers of the paper's tables that figures were taken from."""
        return sorted({line.theirs.table for line in self.rows if line.theirs})

    @property
    def fair(self) -> bool:
        """Whether figures were found, and they are of the network that ours are of."""
        recorded = self.table.rows[0].first.header["model"]["name"]
        theirs = {line.theirs.network for line in self.rows if line.theirs}
        return paper_protocol().network_of(recorded) in theirs

    @property
    def line(self) -> str:
        """What a reader must know before comparing."""
        if self.dataset is None:
            return f"The paper has no such stream: {listed(self.departures)}."
        noun = "Tables" if len(self.tables) > 1 else "Table"
        place = f"{noun} {listed(self.tables)}" if self.tables else "no table"
        kept = "nothing beyond the training of the network and the random numbers"
        return f"Paper: {place} ({self.dataset}). Not as there: {'; '.join(self.departures) or kept}."


def compare_with_paper(table: Table, *, prefer: Sequence[int] = ()) -> Comparison:
    """Return a table's rows beside the paper's.

    Args:
        table: ours.
        prefer: numbers of the paper's tables to look in first, such as the one that an experiment repeats.
    """
    stream = table.rows[0].first.header["stream"]
    dataset = paper_protocol().dataset_of(stream["dataset"]["name"])
    strange = _strangeness(table)
    if dataset is None or strange:
        reasons = strange if dataset else [f"images {stream['dataset']['name']}", *strange]
        return Comparison(table, None, tuple(Compared(row, None) for row in table.rows), tuple(reasons))
    rows = tuple(_compared(row, dataset, stream["schedule"], prefer) for row in table.rows)
    return Comparison(table, dataset.name, rows, tuple(_departures(table, dataset, rows)))


def _strangeness(table: Table) -> list[str]:
    """What makes a stream another one than the paper's, so that no figure of it may stand beside ours."""
    header, paper = table.rows[0].first.header, paper_protocol()
    stream = header["stream"]
    strange = []
    if stream["schedule"] not in ("continual", "gradual"):
        strange.append(f"schedule {stream['schedule']}")
    if tuple(stream.get("corruptions") or table.domains) != paper.corruptions:
        strange.append(f"{counted(len(table.domains), 'domain', 'domains')} that are not its fifteen in their order")
    if stream["schedule"] == "continual" and stream.get("severity") != paper.severity:
        strange.append(f"severity {value_text(stream.get('severity'))}")
    if stream.get("rounds") not in (None, 1):
        strange.append(f"{stream['rounds']} rounds")
    if stream.get("order") not in (None, paper.order):
        strange.append(f"order {stream['order']}")
    if header["reset_on"] != paper.reset_on:
        strange.append(f"reset on {header['reset_on']}")
    return strange


def _compared(row: Row, dataset: PaperDataset, schedule: str, prefer: Sequence[int]) -> Compared:
    network = paper_protocol().network_of(row.first.header["model"]["name"])
    figures = [
        line
        for number in dict.fromkeys([*prefer, *_ORDER])
        for line in paper_table(number).rows
        if (line.schedule, line.dataset, line.method) == (schedule, dataset.name, row.method)
    ]
    near = [line for line in figures if line.network == network]
    figures = near or [line for line in figures if line.network == dataset.network]
    if row.method != LAW:
        return Compared(row, next(iter(figures), None))
    return _compared_law(row, dataset, figures)


def _compared_law(row: Row, dataset: PaperDataset, figures: Sequence[PaperRow]) -> Compared:
    """Take the figure of the same settings; where the paper has none, that of its own settings, and say so."""
    settings = row.settings
    alike = [line for line in figures if not _parting(settings, {**dataset.law, **line.settings})]
    if alike:
        return Compared(row, alike[0])
    own = [line for line in figures if not _parting(line.settings, dataset.law)]
    remarks = [
        f"{name} {value_text(settings[name])} (paper {value_text(wanted)})"
        for name, wanted in _parting(settings, dataset.law).items()
    ]
    return Compared(row, next(iter(own), None), tuple(remarks))


def _parting(settings: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is wanted and set to something else; what is not told stands at its default."""
    return {name: value for name, value in wanted.items() if name in settings and settings[name] != value}


def _departures(table: Table, dataset: PaperDataset, rows: Sequence[Compared]) -> list[str]:
    """What the runs of a table do otherwise than the paper: network, images, batches, pixels, seeds, precision."""
    header = table.rows[0].first.header
    stream, recorded = header["stream"], header["model"]["name"]
    network = paper_protocol().network_of(recorded)
    told = []
    theirs = {line.theirs.network for line in rows if line.theirs} or {dataset.network}
    if network not in theirs:
        told.append(f"network {recorded} (paper {listed(sorted(theirs))})")
    elif recorded != network:
        told.append(f"network {recorded}, a form of {network}")
    origin = str(stream["dataset"].get("origin") or "")
    if "our split" in origin:
        told.append("our split of the images")
    for name, ours, wanted in (
        ("images a domain", stream.get("images_per_domain"), dataset.images_per_domain),
        ("images a batch", stream.get("batch_size"), dataset.batch_size),
    ):
        if ours is not None and ours != wanted:
            told.append(f"{ours:,} {name} (paper {wanted:,})")
    if stream.get("archive") is None and stream.get("pixels"):
        told.append(f"pixels {stream['pixels']} by us, not the published files")
    seeds = {len(row.seeds) for row in table.rows if row.finished}
    if seeds and seeds != {paper_protocol().seeds}:
        told.append(
            f"{listed(sorted(seeds))} {'seed' if seeds == {1} else 'seeds'} (paper {paper_protocol().seeds} runs)"
        )
    precisions = {str(row.settings["precision"]) for row in table.rows if "precision" in row.settings}
    if precisions:
        told.append(f"precision {listed(sorted(precisions))}")
    return told
