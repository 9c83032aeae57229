"""Step times from a record of ``python -m benchmarks step``, for tables of runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.report_tables import read_bench
from driftlaw.errors import DataError
from driftlaw.records import RunRecord
from driftlaw.reports.protocol import describe_device, device_name
from driftlaw.reports.result_table import ResultTable

SAME_WORK = {"learning_rate", "tau", "consistency_weight"}
"""Settings that do not change the time of a step."""


@dataclass(frozen=True)
class StepTimes:
    """Step times from a benchmark.

    Attributes:
        seconds: Function from a run to the seconds per step of its method, or to None if not measured.
        origin: Where the times come from, for the note under a table.
    """

    seconds: Callable[[RunRecord], float | None]
    origin: str


def with_step_times(tables: Sequence[ResultTable], times: StepTimes | None) -> list[ResultTable]:
    """Return tables with the step times of a benchmark and a note about them.

    A table without any measured row keeps the times of its records.
    """
    return [_with_times(table, times) if times else table for table in tables]


def _with_times(table: ResultTable, times: StepTimes) -> ResultTable:
    seconds = [times.seconds(row.first) for row in table.rows]
    if all(value is None for value in seconds):
        return table
    rows = [replace(row, cost=replace(row.cost, seconds=value)) for row, value in zip(table.rows, seconds, strict=True)]
    return replace(table, rows=tuple(rows), notes=(*table.notes, f"Milliseconds per step: {times.origin}."))


def read_step_times(path: Path) -> StepTimes:
    """Return the step times in a file of ``python -m benchmarks step``.

    Raises:
        DataError: If the file is another benchmark, or does not contain the settings of what it measured.
    """
    record = read_bench(path)
    if record["bench"] != "step":
        raise DataError(f"{path} is a record of the benchmark '{record['bench']}'. Step times come from 'step'.")
    if not any("settings_in_full" in row for row in record["rows"]):
        raise DataError(f"{path} does not contain the settings that were measured. Run {record['command']} again.")
    return step_times(record, path.name)


def step_times(record: Mapping[str, Any], name: str) -> StepTimes:
    """Return the step times in a benchmark record.

    A run has the time of a measurement with the same device, model, batch size, method and settings, except for the
    settings in ``SAME_WORK``.
    """

    def seconds(run: RunRecord) -> float | None:
        if device_name(run) != describe_device(record["device"]):
            return None
        expected = (run.header["model"].get("name"), run.header["stream"].get("batch_size"), run.method)
        for row in record["rows"]:
            same = (row["model"], row["batch_size"], row["method"]) == expected
            if same and _work(row.get("settings_in_full", {})) == _work(run.header["settings"]):
                return float(row["milliseconds"]["median"]) / 1000.0
        return None

    device = record["device"]
    nondeterministic = device["type"] == "cuda" and not record.get("deterministic")
    kernels = "; cuDNN used its fastest kernels, whereas runs use deterministic ones" if nondeterministic else ""
    where = f"{device['name']}, commit {record.get('commit')}"
    return StepTimes(seconds, f"measured in one run of the step benchmark ({where}; command in {name}{kernels})")


def _work(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in SAME_WORK}
