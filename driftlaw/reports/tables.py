"""Records grouped into result tables: one table per protocol, one row per method and settings, ranked."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import PurePath
from statistics import fmean, median, stdev

from driftlaw.errors import UsageError
from driftlaw.records import RunRecord, Segment, validate_record
from driftlaw.records.run_record import predictions
from driftlaw.reports.format import listed, value_text
from driftlaw.reports.protocol import describe_protocol, device_name, protocol_key, severities
from driftlaw.reports.result_table import BASELINE, Cost, ResultRow, ResultTable, TableValue
from driftlaw.reports.statistics import paired_difference


def make_tables(records: Iterable[RunRecord]) -> list[ResultTable]:
    """Return one table per protocol; the order of the records does not matter.

    Raises:
        UsageError: If there are no records.
        DataError: If a record lacks a field or its closing line does not match its batches.
    """

    def order(run: RunRecord) -> tuple[str, str, int, bool, int, str]:
        # Of two equal runs, the first is kept: the finished one, or the one with more metrics.
        return (*_settings_key(run), run.seed, not run.finished, -len(run.metrics), run.location)

    groups: dict[str, list[RunRecord]] = {}
    for record in sorted(map(validate_record, records), key=order):
        groups.setdefault(protocol_key(record), []).append(record)
    if not groups:
        raise UsageError("There are no records to report. Pass .jsonl files of `driftlaw run`, or their folder.")
    tables = _name_weights([_make_table(group) for group in groups.values()])
    return sorted(tables, key=lambda table: (table.protocol.name, table.protocol.key))


def make_run_row(record: RunRecord, table: ResultTable) -> ResultRow:
    """Return a single run as a row with the columns of its table."""
    return _make_row([record], table.domains, table.severities)


def _name_weights(tables: list[ResultTable]) -> list[ResultTable]:
    """Add the name of the weights to tables that would otherwise have the same name."""
    models = [table.rows[0].first.header["model"] for table in tables]
    weights = [
        (PurePath(str(model.get("weights") or "")).name, str(model.get("sha256") or "unknown")) for model in models
    ]
    named = []
    for table, (name, sha256) in zip(tables, weights, strict=True):
        title = table.protocol.name
        same = {pair for other, pair in zip(tables, weights, strict=True) if other.protocol.name == title}
        if len({other for _, other in same}) > 1:
            unique = len({other for other, _ in same}) == len(same)
            title += f" ({name if unique else f'{name} {sha256[:8]}'.strip()})"
        named.append(replace(table, protocol=replace(table.protocol, name=title)))
    return named


def _settings_key(record: RunRecord) -> tuple[str, str]:
    return record.method, json.dumps(record.settings, sort_keys=True)


def _make_table(records: list[RunRecord]) -> ResultTable:
    runs: dict[tuple[tuple[str, str], int], RunRecord] = {}
    notes = []
    for record in records:  # a copy of a record must not count as another seed
        first = runs.setdefault((_settings_key(record), record.seed), record)
        if first is not record:
            run = f"{record.method} with seed {record.seed}"
            notes.append(f"Skipped {record.location}: {run} is also in {first.location}.")
    groups: dict[tuple[tuple[str, str], int | None], list[RunRecord]] = {}
    for (key, seed), record in runs.items():
        groups.setdefault((key, None if record.finished else seed), []).append(record)
    kept = list(runs.values())
    seen = dict.fromkeys(segment.name for record in kept for segment in record.segments)
    planned = dict.fromkeys(kept[0].header["stream"].get("corruptions") or [])
    domains, levels = tuple(planned if set(seen) <= set(planned) else seen), severities(kept)
    rows = _add_labels([_make_row(group, domains, levels) for group in groups.values()])

    def order(row: ResultRow) -> tuple[bool, bool, float, str, list[int]]:
        return not row.finished, row.method != BASELINE, -(row.summaries[0].mean or 0.0), row.label, row.seeds

    rows.sort(key=order)
    if len({tuple(row.seeds) for row in rows if row.finished}) > 1:
        notes.append(
            "Rows have different seeds: a mean is over all seeds of its row, a paired difference over the common seeds."
        )
    notes += [note for row in rows for note in _row_notes(row)]
    return _add_marks(ResultTable(describe_protocol(kept), domains, levels, tuple(rows), tuple(notes)))


def _make_row(records: Sequence[RunRecord], domains: Sequence[str], levels: Sequence[int]) -> ResultRow:
    runs = [_complete_segments(record) for record in records]
    errors = [_mean_over_seeds([[s.error for s in run if s.name == name] for run in runs]) for name in domains]
    summaries = [
        _mean_over_seeds([[s.error for s in run if level in (None, s.severity)] for run in runs])
        if records[0].finished
        else TableValue(None)  # a mean over fewer domains is not comparable
        for level in _summary_severities(levels)
    ]
    title = str(records[0].header.get("title") or records[0].method)
    return ResultRow(title, tuple(records), tuple(errors), tuple(summaries), _cost(records))


def _summary_severities(levels: Sequence[int]) -> list[int | None]:
    return [None] if len(levels) < 2 else [None, levels[-1]]


def _complete_segments(record: RunRecord) -> list[Segment]:
    """Return the segments that were run to their end."""
    segments = record.segments
    if record.finished or not segments:
        return segments
    complete = segments[-1].images == record.header["stream"].get("images_per_domain")
    return segments if complete else segments[:-1]


def _mean_over_seeds(errors: list[list[float | None]]) -> TableValue:
    known = [[value for value in values if value is not None] for values in errors]
    means = [fmean(values) for values in known if values]
    return TableValue(fmean(means) if means else None, stdev(means) if len(means) > 1 else None)


def _cost(records: Sequence[RunRecord]) -> Cost:
    def median_of(values: Iterable[float | None]) -> float | None:
        known = [float(value) for value in values if value is not None]
        return median(known) if known else None

    peaks = [record.timing.get("peak_bytes") for record in records]
    return Cost(
        seconds=median_of(record.seconds_per_step for record in records if record.batches and not record.shared_gpu),
        forward_flops=median_of(record.cost.get("forward_flops_per_image") for record in records),
        step_flops=median_of(record.cost.get("step_flops_per_image") for record in records),
        peak_bytes=max((float(peak) for peak in peaks if peak), default=None),
        device=", ".join(sorted({device_name(record) for record in records})),
    )


def _add_labels(rows: list[ResultRow]) -> list[ResultRow]:
    """Label rows of the same method with the settings that differ between them."""
    labelled = []
    for row in rows:
        peers = [other.settings for other in rows if other.method == row.method]
        # A setting that a record does not contain has its default and is not in the label.
        known = {**row.first.execution, **row.settings}
        parts = [
            f"{name}={value_text(known[name])}"
            for name in sorted({name for settings in peers for name in settings} & known.keys())
            if len({value_text(settings.get(name, "unset")) for settings in peers}) > 1
        ]
        labelled.append(replace(row, settings_label=" ".join(parts)))
    return labelled


def _add_marks(table: ResultTable) -> ResultTable:
    """Mark the two lowest errors of every column; add the differences from the best row and from the source model."""
    ranked = table.ranked
    if len(ranked) < 2:
        return table
    selections: list[tuple[str | None, int | None]] = [(name, None) for name in table.domains]
    selections += [(None, level) for level in _summary_severities(table.severities)]
    columns = zip(*[(*row.domains, *row.summaries) for row in ranked], strict=True)
    marks = [_column_marks(ranked, values, *which) for values, which in zip(columns, selections, strict=True)]
    baseline = table.baseline.summaries[0].mean if table.baseline else None
    marked = {}
    for index, row in enumerate(ranked):
        values = zip((*row.domains, *row.summaries), marks, strict=True)
        cells = tuple(replace(value, mark=column[index]) for value, column in values)
        mean, comparable = row.summaries[0].mean, row.method != BASELINE
        marked[row] = replace(
            row,
            domains=cells[: len(table.domains)],
            summaries=cells[len(table.domains) :],
            vs_best=paired_difference(row.records, ranked[0].records) if index else None,
            difference=mean - baseline if comparable and mean is not None and baseline is not None else None,
        )
    return replace(table, rows=tuple(marked.get(row, row) for row in table.rows))


def _column_marks(
    rows: list[ResultRow], values: Sequence[TableValue], domain: str | None, severity: int | None
) -> list[str]:
    """Return the mark of every row in one column; errors that are printed alike get the same mark."""
    printed = [None if value.mean is None else round(value.mean, 1) for value in values]
    lowest_two = sorted({error for error in printed if error is not None})[:2]
    mark_of: dict[float | None, str] = dict(zip(lowest_two, ("lowest", "second"), strict=False))
    marks = [mark_of.get(error, "") for error in printed]
    ranked = sorted((value.mean, index) for index, value in enumerate(values) if value.mean is not None)
    if len(ranked) > 1 and printed.count(printed[best := ranked[0][1]]) == 1:
        # The closest rival first: it is the most likely to end the comparison.
        differences = (
            paired_difference(rows[rival].records, rows[best].records, domain=domain, severity=severity)
            for _, rival in ranked[1:]
        )
        if all(difference is not None and difference.is_above_zero for difference in differences):
            marks[best] = "best"
    return marks


def _row_notes(row: ResultRow) -> list[str]:
    count = sum(record.not_finite for record in row.records)
    total = sum(predictions(line) for record in row.records for line in record.batches)
    text = f"{row.label}: {count:,} of {total:,} predictions were NaN or infinite. They count as wrong."
    not_finite = [text] if count else []
    if not row.finished:
        return [
            *not_finite,
            f"{row.label}, seed {row.seeds[0]} is unfinished ({row.progress}, {row.first.location}): "
            "its row contains complete domains only, has no mean and is not ranked.",
        ]
    kinds = {
        "versions": {str(record.header["driftlaw"]) for record in row.records},
        "commits": {str(record.header.get("commit")) for record in row.records},
        "devices": {device_name(record) for record in row.records},
    }
    return not_finite + [
        f"{row.label}: its seeds were run with different {kind} ({listed(sorted(values))})."
        for kind, values in kinds.items()
        if len(values) > 1
    ]
