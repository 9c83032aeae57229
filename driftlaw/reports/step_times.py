"""Milliseconds of a benchmark for a table of runs: all methods in one run, none of them beside another on a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from driftlaw.errors import DataError
from driftlaw.records import RunRecord
from driftlaw.reports.bench_tables import read_bench
from driftlaw.reports.tables import Table


@dataclass(frozen=True)
class StepTimes:
    """What ``driftlaw bench step`` found: its record, and what the record's file is called."""

    record: Mapping[str, Any]
    name: str

    def seconds_of(self, run: RunRecord) -> float | None:
        """Return the seconds of a step such as this run's, None where none such was measured.

        Network, batch size and method are the same, and so are those settings that change the work of a step: counts
        and choices do, rates and weights of losses do not.
        """
        model, size = run.header["model"].get("name"), run.header["stream"].get("batch_size")
        work = _work(run.header["settings"])
        for row in self.record["rows"]:
            same = (row["model"], row["batch_size"], row["method"]) == (model, size, run.method)
            if same and _work(row.get("settings_in_full", {})) == work:
                return float(row["milliseconds"]["median"]) / 1000.0
        return None

    @property
    def origin(self) -> str:
        """Where the milliseconds come from."""
        where = f"{self.record['device']['name']}, commit {self.record.get('commit')}"
        return f"of all methods in one run of driftlaw bench step ({where}; {self.name} holds its command)"


def _work(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if not isinstance(value, float)}


def read_step_times(path: Path) -> StepTimes:
    """Return what a record of ``driftlaw bench step`` says; any other file raises DataError."""
    record = read_bench(path)
    if record["bench"] != "step":
        raise DataError(f"{path} is a record of bench {record['bench']}: milliseconds beside runs come from bench step")
    return StepTimes(record, path.name)


def with_step_times(tables: Sequence[Table], times: StepTimes | None) -> list[Table]:
    """Return the tables with the milliseconds of a benchmark in place of the runs' own, and a note that says so.

    A table none of whose rows was measured keeps its own.
    """
    return list(tables) if times is None else [_timed(table, times) for table in tables]


def _timed(table: Table, times: StepTimes) -> Table:
    rows = tuple(replace(row, benched=True, seconds=times.seconds_of(row.first)) for row in table.rows)
    if all(row.seconds is None for row in rows):
        return table
    notes = (*table.notes, f"milliseconds a step: {times.origin}")
    return replace(table, rows=rows, notes=notes, timing=times.origin)
