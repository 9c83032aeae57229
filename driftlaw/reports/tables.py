"""Records grouped into tables: one a protocol, a row a method and its settings, mean and spread over seeds, ranks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from statistics import fmean, stdev
from typing import Any

from driftlaw.errors import UsageError
from driftlaw.records import RunRecord, Segment
from driftlaw.records.validation import validate_record
from driftlaw.reports.format import listed, value_text
from driftlaw.reports.protocol import Protocol, describe_protocol, device_name, protocol_key, severities
from driftlaw.reports.statistics import Difference, paired_difference

BASELINE = "source"


@dataclass(frozen=True)
class Cell:
    """One number of a table: the mean over seeds, the standard deviation (None for one seed) and its rank."""

    mean: float | None
    spread: float | None = None
    mark: str = ""  # "best" (lowest, and beyond doubt), "second" (the other lowest and second lowest) or nothing


@dataclass(frozen=True, eq=False)
class Row:
    """A method with its settings, over the seeds it was run with.

    Attributes:
        title: the method's name as people write it.
        records: its runs, by seed; an unfinished run stands in a row of its own.
        domains: a cell a domain, in the order of the table's columns.
        summaries: a cell a summary column (the mean; for streams of several severities, @1-5 and @5).
        difference: the first summary less that of the source network, in points.
        distinction: those settings that tell this row from others of the same method.
        to_lowest: its error less that of the row with the lowest, paired; None for that row and where none is shared.
        benched: whether its time comes from a benchmark, and not from its records.
        seconds: a step, where it does and the benchmark knows.
    """

    title: str
    records: tuple[RunRecord, ...]
    domains: tuple[Cell, ...]
    summaries: tuple[Cell, ...]
    difference: float | None = None
    distinction: str = ""
    to_lowest: Difference | None = None
    benched: bool = False
    seconds: float | None = None

    @property
    def label(self) -> str:
        """The title, with what tells it from other rows of the same method."""
        return f"{self.title} {self.distinction}".strip()

    @property
    def first(self) -> RunRecord:
        """The run with the lowest seed."""
        return self.records[0]

    @property
    def method(self) -> str:
        """The method's name."""
        return self.first.method

    @property
    def seeds(self) -> list[int]:
        """The seeds, rising."""
        return [record.seed for record in self.records]

    @property
    def finished(self) -> bool:
        """Whether the runs reached the end of their stream."""
        return self.first.finished

    @property
    def needs_train_data(self) -> bool:
        """Whether the method keeps source data at hand."""
        return bool(self.first.header.get("needs_source", False))

    @property
    def progress(self) -> str:
        """How far an unfinished run came."""
        return f"{len(self.first.batches)} of {self.first.header['batches']} batches"

    @property
    def settings(self) -> dict[str, Any]:
        """The method's settings, of a run that says in what precision it ran where there is one."""
        return next((record for record in self.records if _says_how_it_ran(record)), self.first).settings


@dataclass(frozen=True)
class Table:
    """Runs that may be compared: columns, rows (source first, then from the worst to the best) and remarks.

    ``columns`` names what was asked for beside the errors, as ``driftlaw.reports.columns.COLUMNS`` does; ``partner``
    whose figures are to stand beside ours, as ``driftlaw.reports.published_rows.PARTNERS`` does; ``timing`` the
    benchmark that milliseconds come from, where they are not the records' own.
    """

    protocol: Protocol
    domains: tuple[str, ...]
    severities: tuple[int, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    partner: str | None = None
    timing: str = ""

    @property
    def summaries(self) -> tuple[str, ...]:
        """The headings of the summary columns: over all severities, and over the highest where there are several."""
        lowest_first = self.severities
        return (
            ("mean",) if len(lowest_first) < 2 else (f"@{lowest_first[0]}-{lowest_first[-1]}", f"@{lowest_first[-1]}")
        )

    @property
    def ranked(self) -> list[Row]:
        """The finished rows, the lowest error first."""
        finished = [row for row in self.rows if row.finished]
        return sorted(finished, key=lambda row: (row.summaries[0].mean or 0.0, row.label))

    @property
    def baseline(self) -> Row | None:
        """The row of the network that does not adapt, where it was run."""
        return next((row for row in self.rows if row.finished and row.method == BASELINE), None)

    @property
    def has_spread(self) -> bool:
        """Whether any row was run with several seeds."""
        return any(len(row.records) > 1 for row in self.rows)


def make_tables(records: Iterable[RunRecord]) -> list[Table]:
    """Return one table a protocol, the same ones whatever the order of the records.

    Raises:
        UsageError: there is no record.
        DataError: a record lacks a field, or its closing line does not fit its batches.
    """
    by_protocol: dict[str, list[RunRecord]] = {}
    for record in sorted(map(validate_record, records), key=_order):
        by_protocol.setdefault(protocol_key(record), []).append(record)
    if not by_protocol:
        raise UsageError("no record to report: give the .jsonl files that `driftlaw run` writes, or their folder")
    tables = _with_networks_told_apart([_make_table(group) for group in by_protocol.values()])
    return sorted(tables, key=lambda table: (table.protocol.name, table.protocol.key))


def make_run_row(record: RunRecord, table: Table) -> Row:
    """Return one run as a row of its own under the columns of its table."""
    return _make_row([record], table.domains, table.severities)


def report_notes(tables: Sequence[Table]) -> list[str]:
    """Return what a reader must know beside the numbers: unfinished runs, runs left out, mixed versions."""
    return [note for table in tables for note in table.notes]


def _with_networks_told_apart(tables: list[Table]) -> list[Table]:
    """Name the weights in the names of tables that would share one: the same architecture, trained in other ways."""
    trained: dict[str, dict[str, str]] = {}
    for table in tables:
        weights, sha256 = _weights(table)
        trained.setdefault(table.protocol.name, {})[sha256] = weights
    named = []
    for table in tables:
        known, (weights, sha256) = trained[table.protocol.name], _weights(table)
        if len(known) > 1:
            told = weights if len(set(known.values())) == len(known) else f"{weights} {sha256[:8]}"
            table = replace(table, protocol=replace(table.protocol, name=f"{table.protocol.name} ({told.strip()})"))
        named.append(table)
    return named


def _weights(table: Table) -> tuple[str, str]:
    """Return the name of a table's weights, of a file without the folder it lay in, and their sha256."""
    model = table.rows[0].first.header["model"]
    return PurePath(str(model.get("weights") or "")).name, str(model.get("sha256") or "unknown")


def _order(record: RunRecord) -> tuple[str, str, int, bool, int, str]:
    measured = len(record.header.get("measures", {}))  # of two runs that differ in nothing else, the fuller is kept
    return (record.method, _settings_key(record), record.seed, not record.finished, -measured, record.location)


def _settings_key(record: RunRecord) -> str:
    return json.dumps(record.settings, sort_keys=True)


def _says_how_it_ran(record: RunRecord) -> bool:
    return "execution" in record.header


def _row_key(record: RunRecord, beside: Sequence[RunRecord]) -> tuple[str, str]:
    """Return what the runs of one row share: method and settings.

    A run of an early version does not say in what precision it ran. It joins the row of the runs on the same device
    that differ from it in nothing else, where there is only one.
    """
    own = (record.method, _settings_key(record))
    if _says_how_it_ran(record):
        return own
    peers = {
        (other.method, _settings_key(other))
        for other in beside
        if _says_how_it_ran(other)
        and other.method == record.method
        and device_name(other) == device_name(record)
        and _without_precision(other) == _without_precision(record)
    }
    return peers.pop() if len(peers) == 1 else own


def _without_precision(record: RunRecord) -> dict[str, Any]:
    return {name: value for name, value in record.settings.items() if name != "precision"}


def _make_table(records: list[RunRecord]) -> Table:
    kept, left_out = _without_doubles(records)
    domains, levels = _columns(kept), severities(kept)
    rows = [_make_row(group, domains, levels) for group in _grouped(kept)]
    rows = _with_differences(_with_marks(_with_labels(rows), domains, levels))
    notes = left_out + _seed_notes(rows) + [note for row in rows for note in _row_notes(row)]
    return Table(describe_protocol(kept), domains, levels, tuple(sorted(rows, key=_row_order)), tuple(notes))


def _seed_notes(rows: Sequence[Row]) -> list[str]:
    if len({tuple(row.seeds) for row in rows if row.finished}) < 2:
        return []
    return ["rows have different seeds: a mean is over a row's own, a paired difference over those that two rows share"]


def _without_doubles(records: list[RunRecord]) -> tuple[list[RunRecord], list[str]]:
    """Keep one run of every method, settings and seed: a copy must not count as another seed."""
    kept: dict[tuple[tuple[str, str], int], RunRecord] = {}
    notes = []
    for record in records:
        key = (_row_key(record, records), record.seed)
        first = kept.setdefault(key, record)
        if first is not record:
            notes.append(
                f"left out {record.location}: {record.method} with seed {record.seed} is also in {first.location}"
            )
    return list(kept.values()), notes


def _columns(records: list[RunRecord]) -> tuple[str, ...]:
    seen = list(dict.fromkeys(segment.name for record in records for segment in record.segments))
    planned = list(dict.fromkeys(records[0].header["stream"].get("corruptions") or []))
    return tuple(planned if set(seen) <= set(planned) else seen)


def _grouped(records: list[RunRecord]) -> list[list[RunRecord]]:
    groups: dict[tuple[tuple[str, str], int | None], list[RunRecord]] = {}
    for record in records:
        alone = None if record.finished else record.seed
        groups.setdefault((_row_key(record, records), alone), []).append(record)
    return [sorted(group, key=lambda record: record.seed) for group in groups.values()]


def _make_row(records: list[RunRecord], domains: Sequence[str], levels: Sequence[int]) -> Row:
    whole = [_whole_segments(record) for record in records]
    cells = [_cell([_mean(s.error for s in segments if s.name == name) for segments in whole]) for name in domains]
    pools = [None] if len(levels) < 2 else [None, levels[-1]]
    if records[0].finished:
        summaries = [
            _cell([_mean(s.error for s in segments if level in (None, s.severity)) for segments in whole])
            for level in pools
        ]
    else:
        summaries = [Cell(None) for _ in pools]  # a mean over fewer domains is no mean of this table
    return Row(str(records[0].header.get("title") or records[0].method), tuple(records), tuple(cells), tuple(summaries))


def _whole_segments(record: RunRecord) -> list[Segment]:
    """The segments that were run to their end: all of a finished run, all but a torn last one of another."""
    segments = record.segments
    if record.finished or not segments:
        return segments
    whole = segments[-1].images == record.header["stream"].get("images_per_domain")
    return segments if whole else segments[:-1]


def _mean(values: Iterable[float]) -> float | None:
    numbers = list(values)
    return fmean(numbers) if numbers else None


def _cell(values: list[float | None]) -> Cell:
    numbers = [value for value in values if value is not None]
    if not numbers:
        return Cell(None)
    return Cell(fmean(numbers), stdev(numbers) if len(numbers) > 1 else None)


def _with_labels(rows: list[Row]) -> list[Row]:
    """Tell rows of one method apart by those settings, and only those, that differ between them.

    A setting that a record leaves unsaid stands at its default, and the row says nothing of it either.
    """
    labelled = []
    for row in rows:
        peers = [other for other in rows if other.method == row.method]
        names = sorted({name for peer in peers for name in peer.settings})
        differing = [
            name for name in names if len({value_text(peer.settings.get(name, "unset")) for peer in peers}) > 1
        ]
        known = {**row.first.header.get("execution", {}), **row.settings}
        told = [f"{name}={value_text(known[name])}" for name in differing if name in known]
        labelled.append(replace(row, distinction=" ".join(told)))
    return labelled


def _with_marks(rows: list[Row], domains: Sequence[str], levels: Sequence[int]) -> list[Row]:
    """Mark the two lowest errors of every column as printed, and tell how far each row is from the lowest mean.

    Equal figures get equal marks. «Best» is only who is parted from every other row by its paired interval.
    """
    finished = [row for row in rows if row.finished]
    if len(finished) < 2:
        return rows
    pools: list[int | None] = [None] if len(levels) < 2 else [None, levels[-1]]
    marks = {
        "domains": [_column_marks(finished, "domains", index, name, None) for index, name in enumerate(domains)],
        "summaries": [_column_marks(finished, "summaries", index, None, level) for index, level in enumerate(pools)],
    }

    def marked_row(row: Row) -> Row:
        place_of = finished.index(row)
        columns = {
            column: tuple(
                replace(cell, mark=marks[column][index][place_of]) for index, cell in enumerate(getattr(row, column))
            )
            for column in marks
        }
        return replace(row, domains=columns["domains"], summaries=columns["summaries"])

    lowest = min(finished, key=lambda row: (row.summaries[0].mean or 0.0, row.label))
    distances = {id(row): None if row is lowest else paired_difference(row.records, lowest.records) for row in finished}
    return [replace(marked_row(row), to_lowest=distances[id(row)]) if row.finished else row for row in rows]


def _column_marks(rows: list[Row], column: str, index: int, domain: str | None, severity: int | None) -> list[str]:
    """Return the mark of every row in one column."""
    means = [getattr(row, column)[index].mean for row in rows]
    printed = [None if mean is None else round(mean, 1) for mean in means]
    levels = sorted({value for value in printed if value is not None})[:2]
    ranked = sorted((mean, place_of) for place_of, mean in enumerate(means) if mean is not None)
    lowest = ranked[0][1] if ranked else 0
    # The nearest rival first: most columns are undecided, and it is the one to say so.
    differences = (
        paired_difference(rows[rival].records, rows[lowest].records, domain=domain, severity=severity)
        for _, rival in ranked[1:]
    )
    alone = printed.count(printed[lowest]) == 1
    parted = len(ranked) > 1 and alone and all(gap is not None and gap.is_above_zero for gap in differences)
    low = ["second" if value in levels else "" for value in printed]
    return ["best" if parted and place_of == lowest else mark for place_of, mark in enumerate(low)]


def _with_differences(rows: list[Row]) -> list[Row]:
    source = next((row.summaries[0].mean for row in rows if row.finished and row.method == BASELINE), None)
    if source is None:
        return rows
    return [
        replace(row, difference=row.summaries[0].mean - source)
        if row.method != BASELINE and row.summaries[0].mean is not None
        else row
        for row in rows
    ]


def _row_order(row: Row) -> tuple[bool, bool, float, str, int]:
    return (not row.finished, row.method != BASELINE, -(row.summaries[0].mean or 0.0), row.label, row.seeds[0])


def _row_notes(row: Row) -> list[str]:
    if not row.finished:
        return [
            f"{row.label}, seed {row.seeds[0]} is unfinished ({row.progress}, {row.first.location}): "
            "its row shows whole domains only, has no mean and is not ranked"
        ]
    kinds = {
        "versions": {str(record.header["driftlaw"]) for record in row.records},
        "commits": {str(record.header.get("commit")) for record in row.records},
        "devices": {device_name(record) for record in row.records},
    }
    mixed = [
        f"{row.label}: its seeds were run with different {kind} ({listed(sorted(found))})"
        for kind, found in kinds.items()
        if len(found) > 1
    ]
    return mixed + _silence_note(row)


def _silence_note(row: Row) -> list[str]:
    silent = [str(record.seed) for record in row.records if not _says_how_it_ran(record)]
    if not 0 < len(silent) < len(row.records):
        return []
    if len(silent) == 1:
        return [f"{row.label}: the record of seed {silent[0]} does not say its precision"]
    return [f"{row.label}: the records of seeds {listed(silent)} do not say their precision"]
