"""Tests of the benchmark ``reliability kill``, with small scripts in place of driftlaw's commands."""

import json
import sys

import pytest

from benchmarks.reliability import kill
from benchmarks.report_tables import make_bench_tables
from driftlaw.errors import UsageError
from tests.benchmarks.test_main import call

SCRIPT = """
import json, pathlib, time
record = pathlib.Path("out/record.jsonl")
record.parent.mkdir(exist_ok=True)
lines = record.read_text().splitlines(keepends=True) if record.exists() else []
with record.open("a") as file:
    for number in range({start}, 8):
        file.write(json.dumps({{"batch": number, "timing": time.time()}}) + "\\n")
        file.flush()
        time.sleep(0.05)
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Return a function that replaces the commands by one that starts at the line ``start`` when it is run again."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    def replace(start):
        (tmp_path / "script.py").write_text(SCRIPT.format(start=start))
        monkeypatch.setattr(kill, "COMMANDS", {"script": "script"})

    return replace


def test_a_command_that_resumes_has_no_differing_records(script):
    script("len(lines)")
    row = kill.kill_command("script", 3, 0, lambda text: None)
    assert (row["kills"], row["differing"], row["examples"]) == (3, 0, [])
    assert len(set(row["shares"])) == 3


def test_a_command_that_repeats_lines_is_found(script):
    script("0")
    row = kill.kill_command("script", 2, 0, lambda text: None)
    assert row["differing"] == 2
    assert row["examples"][0]["files"] == ["record.jsonl"]


def test_the_command_writes_a_record(script, tmp_path):
    script("len(lines)")
    path = tmp_path / "record.json"
    assert "script" in call("reliability", "kill", "--commands", "script", "--kills", "1", "--out", str(path))
    record = json.loads(path.read_text(encoding="utf-8"))
    assert record["bench"] == "reliability-kill"
    assert make_bench_tables(record)[0].lines[0][:3] == ["script", "1", "0"]
    with pytest.raises(UsageError, match="script"):
        call("reliability", "kill", "--commands", "scrip")
