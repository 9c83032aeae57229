"""Result tables: errors per method and domain with their ranks, as numbers."""

from dataclasses import dataclass
from typing import Any

from driftlaw.records import RunRecord
from driftlaw.reports.protocol import Protocol
from driftlaw.reports.statistics import Difference

BASELINE = "source"
SERIES_COLORS = 8  # colors of methods in figures, besides that of the source model


@dataclass(frozen=True)
class TableValue:
    """One error of a table: mean over seeds, standard deviation (None for one seed) and rank.

    ``mark`` is ``best`` for a lowest error that is significantly lower than all others, ``lowest`` for another lowest
    error, ``second`` for the second lowest, and otherwise empty.
    """

    mean: float | None
    spread: float | None = None
    mark: str = ""


@dataclass(frozen=True)
class Cost:
    """Cost per step; a value that the records do not contain is None.

    Attributes:
        seconds: Seconds per step: median over steps, then over seeds, without runs that shared their GPU.
        forward_flops: FLOPs per image of one forward pass of the model, 2 × its multiply-adds.
        step_flops: Measured FLOPs per image of a whole step, forward and backward.
        peak_bytes: Largest peak memory over seeds.
        device: Devices of the runs.
    """

    seconds: float | None
    forward_flops: float | None
    step_flops: float | None
    peak_bytes: float | None
    device: str

    @property
    def forward_passes(self) -> float | None:
        """Cost of a step in forward passes."""
        return self.step_flops / self.forward_flops if self.step_flops and self.forward_flops else None


@dataclass(frozen=True, eq=False)
class ResultRow:
    """Runs of one method with the same settings, one run per seed.

    Attributes:
        title: Name of the method as written in papers.
        records: The runs, by seed. An unfinished run has a row of its own.
        domains: Error per domain, in the order of the table.
        summaries: Error per summary column: the mean, or for several severities ``@1-5`` and ``@5``.
        cost: Cost per step.
        difference: First summary minus that of the source model, in percentage points.
        settings_label: The settings that distinguish this row from other rows of the same method.
        vs_best: Paired difference from the row with the lowest error; None for that row or without common seeds.
    """

    title: str
    records: tuple[RunRecord, ...]
    domains: tuple[TableValue, ...]
    summaries: tuple[TableValue, ...]
    cost: Cost
    difference: float | None = None
    settings_label: str = ""
    vs_best: Difference | None = None

    @property
    def label(self) -> str:
        """The title, with the settings that distinguish this row."""
        return f"{self.title} {self.settings_label}".strip()

    @property
    def first(self) -> RunRecord:
        """The run with the lowest seed."""
        return self.records[0]

    @property
    def method(self) -> str:
        """Name of the method."""
        return self.first.method

    @property
    def seeds(self) -> list[int]:
        """The seeds, ascending."""
        return [record.seed for record in self.records]

    @property
    def finished(self) -> bool:
        """True if the runs reached the end of their stream."""
        return self.first.finished

    @property
    def needs_train_data(self) -> bool:
        """True if the method uses training data during adaptation."""
        return self.first.needs_train_data

    @property
    def progress(self) -> str:
        """Number of completed batches of an unfinished run."""
        planned = self.first.header["batches"]
        return f"{len(self.first.batches)} {'' if planned is None else f'of {planned} '}batches"

    @property
    def settings(self) -> dict[str, Any]:
        """Settings that change predictions."""
        return self.first.settings


@dataclass(frozen=True)
class ResultTable:
    """Comparable runs.

    Attributes:
        protocol: What all runs have in common.
        domains: Names of the domains, in the order of the stream.
        severities: Severities that occur, ascending.
        rows: The source model first, then from highest to lowest error, then unfinished runs.
        notes: What limits a comparison: unfinished runs, skipped duplicates, different versions.
    """

    protocol: Protocol
    domains: tuple[str, ...]
    severities: tuple[int, ...]
    rows: tuple[ResultRow, ...]
    notes: tuple[str, ...] = ()

    @property
    def summary_names(self) -> tuple[str, ...]:
        """Headings of the summary columns."""
        levels = self.severities
        return ("mean",) if len(levels) < 2 else (f"@{levels[0]}-{levels[-1]}", f"@{levels[-1]}")

    @property
    def ranked(self) -> list[ResultRow]:
        """Finished rows with a known error, lowest error first."""
        known = [row for row in self.rows if row.finished and row.summaries[0].mean is not None]
        return sorted(known, key=lambda row: (row.summaries[0].mean or 0.0, row.label))

    @property
    def baseline(self) -> ResultRow | None:
        """Row of the source model, or None if it was not run."""
        return next((row for row in self.rows if row.finished and row.method == BASELINE), None)

    @property
    def has_spread(self) -> bool:
        """True if a row has several seeds."""
        return any(len(row.records) > 1 for row in self.rows)

    def series(self, row: ResultRow) -> int:
        """Return the index of a row among the methods in figures: 0 for the source model, then 1, 2, …"""
        methods = [other for other in self.rows if other.method != BASELINE]
        return 0 if row.method == BASELINE else 1 + methods.index(row)
