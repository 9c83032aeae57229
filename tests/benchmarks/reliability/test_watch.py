"""Tests of the benchmark ``reliability watch``, with a small script in place of `driftlaw watch`."""

import json
import sys

import pytest

from benchmarks.reliability import watch
from benchmarks.report_tables import make_bench_tables
from tests.benchmarks.test_main import call

SCRIPT = """
import json, pathlib, time
out, seen = pathlib.Path("out.jsonl"), {{}}
done = {{json.loads(line)["file"] for line in out.read_text().splitlines()}} if out.exists() and {resumes} else set()
with out.open("a") as file:
    while True:
        for path in sorted(pathlib.Path("in").iterdir()):
            complete = path.read_bytes().endswith(b"IEND\\xaeB`\\x82")
            waited = time.monotonic() - seen.setdefault(path.name, time.monotonic())
            if path.name not in done and (complete or waited > 3):
                done.add(path.name)
                file.write(json.dumps({{"file": path.name, **({{}} if complete else {{"error": "cut off"}})}}) + "\\n")
                file.flush()
        time.sleep(0.01)
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Return a function that replaces the command by a script, which may forget what it wrote before a kill."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(watch, "COMMAND", "watch_script")
    monkeypatch.setattr(watch, "DAMAGED_EVERY", 20)

    def replace(resumes):
        (tmp_path / "watch_script.py").write_text(SCRIPT.format(resumes=resumes))

    return replace


def test_a_command_that_resumes_misses_and_repeats_nothing(script, tmp_path):
    script(resumes=True)
    path = tmp_path / "record.json"
    assert "watch_script" in call("reliability", "watch", "--images", "40", "--kills", "2", "--out", str(path))
    record = json.loads(path.read_text(encoding="utf-8"))
    (row,) = record["rows"]
    assert (row["missing"], row["repeated"], row["wrongly_refused"]) == (0, 0, 0)
    assert (row["damaged"], row["reported"]) == (2, 2)
    assert list(row["memory_mib"]) == ["20", "24", "28", "32", "36", "40"]
    assert make_bench_tables(record)[0].lines[0][1:5] == ["40", "2", "0", "0"]


def test_a_command_that_forgets_what_it_wrote_is_found(script):
    script(resumes=False)
    row = watch.watch_folder("watch_script", 40, 1, 0, lambda text: None)
    assert row["repeated"] > 0
