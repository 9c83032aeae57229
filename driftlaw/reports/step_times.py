"""Milliseconds of a benchmark for a table of runs: measured in one run, none beside another on a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from driftlaw.errors import DataError
from driftlaw.records import RunRecord
from driftlaw.reports.protocol import describe_device, device_name
from driftlaw.reports.tables import Table

NO_WORK = {"learning_rate", "tau", "consistency_weight"}
"""Settings that scale what a step does, and change nothing of the work."""


@dataclass(frozen=True)
class StepTimes:
    """What ``driftlaw bench step`` found: its record, and what the record's file is called."""

    record: Mapping[str, Any]
    name: str

    def seconds_of(self, run: RunRecord) -> float | None:
        """Return the seconds of a step such as this run's, None where none such was measured.

        Device, network, batch size and method are the same, and so are all settings but those of ``NO_WORK``.
        """
        if device_name(run) != describe_device(self.record["device"]):
            return None
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
        device = self.record["device"]
        fastest = device["type"] == "cuda" and not self.record.get("deterministic")
        how = "; cuDNN took its fastest kernels, in runs it takes repeatable ones" if fastest else ""
        where = f"{device['name']}, commit {self.record.get('commit')}"
        return f"measured in one run of driftlaw bench step ({where}; {self.name} holds its command{how})"


def _work(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in NO_WORK}


def read_step_times(path: Path) -> StepTimes:
    """Return what a record of ``driftlaw bench step`` says; any other file raises DataError."""
    from benchmarks.report_tables import read_bench

    record = read_bench(path)
    if record["bench"] != "step":
        raise DataError(f"{path} is a record of bench {record['bench']}: milliseconds beside runs come from bench step")
    if not any("settings_in_full" in row for row in record["rows"]):
        raise DataError(f"{path} does not tell the settings of what it measured: run {record['command']} again")
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
