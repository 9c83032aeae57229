"""Tests of the commands ``corruptions``, ``errors`` and ``report``."""

import json
import signal
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks import __main__ as main
from benchmarks import corruptions as bench
from benchmarks.__main__ import app
from benchmarks.report_tables import read_bench
from driftlaw.errors import UsageError
from tests.benchmarks import bench_records

COMMITTED = sorted((Path(__file__).parents[2] / "results" / "bench").glob("*.json"))


@pytest.fixture(autouse=True)
def _constant_time(monkeypatch):
    def run_once(work, count, device, at_least=0.0):
        work()
        return 1000.0 * count

    monkeypatch.setattr(bench, "_per_second", run_once)


def call(*arguments):
    result = CliRunner().invoke(app, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


def test_sigterm_ends_a_command_with_143(monkeypatch):
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "corruptions"])
    monkeypatch.setattr(main, "app", lambda **_: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(SystemExit) as raised:
        main.main()
    assert raised.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is before


def test_corruptions_prints_every_corruption_and_the_speedup():
    lines = call("corruptions", "--threads", "1", "--images", "2").splitlines()
    assert len(lines) == 2 + 15 + 3
    assert lines[-3].startswith("all fifteen")
    assert lines[-3].endswith("×")


def test_record_is_printed_and_written_as_json(tmp_path):
    out = tmp_path / "new" / "record.json"
    document = json.loads(call("corruptions", "--threads", "1", "--images", "2", "--full", "--json", "--out", str(out)))
    assert document["images"] == 2 * 15 * 5
    assert json.loads(out.read_text()) == document


def test_all_wrong_numbers_are_reported_together():
    with pytest.raises(UsageError) as caught:
        call("corruptions", "--images", "0", "--severity", "9")
    assert "--images" in str(caught.value)
    assert "--severity" in str(caught.value)


def test_errors_prints_a_table():
    lines = call("errors", "embedded", "--methods", "tent", "--limit", "4", "--device", "cpu").splitlines()
    assert lines[0] == "embedded, seeds 1"
    assert [line.split("  ")[0] for line in lines[2:5]] == ["naive tent", "tent, float32", "tent"]


def test_report_reads_the_records_of_the_benchmarks(tmp_path):
    record, page = tmp_path / "step.json", tmp_path / "speed.html"
    record.write_text(json.dumps(bench_records.step()))
    assert "| law | 5.00 |" in call("report", str(record), "--format", "md")
    call("report", str(record), "--format", "html", "--out", str(page))
    assert "Time and memory of a step" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_committed_records_are_readable(path):
    assert read_bench(path)["device"]["name"]
    assert call("report", str(path))
