"""Targets: files of records, checkpoints and tuning."""

from __future__ import annotations

import functools
import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from torch.utils.data import DataLoader

import driftlaw
from benchmarks.reliability.fuzzing.checker import Checker, Draw
from benchmarks.reliability.fuzzing.networks import adapter_of, train_data
from benchmarks.reliability.fuzzing.values import damage_bytes, damage_tree, mostly
from benchmarks.tune.files import check_same_weights
from driftlaw.records import compress_record, find_records, metrics, read_record, validate_record
from driftlaw.records.tuning_file import read_tuning
from driftlaw.reports import build_report, make_tables

FORMATS = ("md", "csv", "json", "latex", "terminal")  # pages with figures take too long


class _Stop(Exception):
    pass


@functools.cache
def example_files() -> dict[str, bytes]:
    """Return the files of a finished run and of an interrupted one, by name."""
    with tempfile.TemporaryDirectory() as name:
        folder, loader = Path(name), DataLoader(train_data(), batch_size=4)

        def stop(line: dict[str, Any]) -> None:
            if line["batch"] == 1:
                raise _Stop

        adapter = adapter_of("law")
        adapter.reset()
        driftlaw.run(loader, adapter, record=folder / "finished.jsonl", metrics=["calibration", "drift"])
        adapter.reset()
        try:
            driftlaw.run(loader, adapter, record=folder / "stopped.jsonl", checkpoint_seconds=0.0, progress=stop)
        except _Stop:
            adapter.reset()
        return {path.name: path.read_bytes() for path in folder.iterdir()}


def damage_lines(draw: Draw, data: bytes) -> bytes:
    """Return JSON Lines in which values, lines or bytes were changed."""
    kind = draw(st.sampled_from(("values", "values", "values", "lines", "bytes")))
    if kind == "bytes":
        return damage_bytes(draw, data)
    lines = [json.loads(line) for line in data.splitlines()]
    if mostly(draw, st.just(True), st.just(False)):  # without the hash, as in old records, changes are not noticed
        lines[-1].get("timing", {}).pop("record_sha256", None)
    if kind == "lines":
        lines = draw(st.lists(st.sampled_from(lines), max_size=6))
    else:
        number = draw(st.integers(0, len(lines) - 1))
        lines[number] = damage_tree(draw, lines[number])
    return "".join(json.dumps(line) + "\n" for line in lines).encode("utf-8", "surrogatepass")


def record_files(draw: Draw, checker: Checker, folder: Path) -> None:
    """Reading, validation, metrics, tables and reports of damaged records."""
    data = damage_lines(draw, example_files()["finished.jsonl"])
    path = folder / "record.jsonl"
    if draw(st.integers(0, 4)) == 0:
        path = folder / "record.jsonl.gz"
        data = damage_bytes(draw, gzip.compress(data))
    path.write_bytes(data)

    def read(path: Path) -> Any:
        return validate_record(read_record(find_records([path.parent])[0]))

    record = checker.call(read, path)
    if record is None:
        return

    def measure(header: Any, batches: Any, closing: Any) -> None:
        repr(record), record.settings, record.cost, record.load_average, record.error_by_domain, record.metrics
        for function in (metrics.calibration_error, metrics.clean_error, metrics.error_by_round, metrics.worst_window):
            function(record)
        metrics.mean_recovery(record), metrics.layer_drift(record)

    checker.call(measure, record.header, record.batches, record.closing)
    format = draw(st.sampled_from(FORMATS))

    def report(format: str, header: Any, batches: Any, closing: Any) -> None:
        build_report(make_tables([record]), format).encode()

    checker.call(report, format, record.header, record.batches, record.closing)
    if path.suffix == ".jsonl":
        checker.call(compress_record, path)


def resumed_runs(draw: Draw, checker: Checker, folder: Path) -> None:
    """``driftlaw.run`` that resumes from a damaged record and checkpoint."""
    files = example_files()
    name = draw(st.sampled_from(("stopped.jsonl",) * 4 + ("finished.jsonl",)))
    damaged = draw(st.sampled_from(("record", "checkpoint", "both")))
    data = damage_lines(draw, files[name]) if damaged != "checkpoint" else files[name]
    (folder / "record.jsonl").write_bytes(data)
    checkpoint = files["stopped.jsonl.checkpoint.pt"]
    checkpoint = damage_bytes(draw, checkpoint) if damaged != "record" else checkpoint
    (folder / "record.jsonl.checkpoint.pt").write_bytes(checkpoint)
    adapter = adapter_of("law")
    adapter.reset()

    def resume(record: bytes, damaged: str) -> None:
        driftlaw.run(DataLoader(train_data(), batch_size=4), adapter, record=folder / "record.jsonl")

    checker.call(resume, data, damaged)
    adapter.reset()


def tuning_files(draw: Draw, checker: Checker, folder: Path) -> None:
    """Reading of damaged files of ``tune``."""
    path = folder / "tuning.json"
    text = json.dumps(damage_tree(draw, _tuning())).encode("utf-8", "surrogatepass")
    path.write_bytes(damage_bytes(draw, text) if draw(st.integers(0, 2)) == 0 else text)
    checker.call(read_tuning, path)
    checker.call(check_same_weights, path, "0" * 64)


@functools.cache
def _tuning() -> dict[str, Any]:
    path = Path(__file__).parents[3] / "results" / "tuning" / "cifar10-c.json"
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document | {"trials": document["trials"][:2]}
