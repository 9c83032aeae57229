import subprocess
import sys
from pathlib import Path

import pytest

from tests.reports.example_records import make_record, write_record

ROOT = Path(__file__).resolve().parent.parent.parent


def make_results(*words):
    command = [sys.executable, "tools/make_results.py", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.fixture
def checkout(tmp_path):
    for name, error in [("law", 20), ("tent", 25)]:
        write_record(make_record(name, [error] * 15), tmp_path / "results" / "table1" / "cifar10-c" / f"{name}.jsonl")
    return tmp_path


def test_results_are_what_the_records_say():
    done = make_results("--check")
    assert done.returncode == 0, done.stderr


def test_what_is_out_of_date_is_named_and_made_anew(checkout):
    done = make_results("--root", checkout, "--check")
    assert done.returncode == 1
    assert "out of date: RESULTS.md, results/figures/fig1b-" in done.stderr
    assert not (checkout / "RESULTS.md").exists()
    stale = checkout / "results" / "figures" / "old.svg"
    stale.parent.mkdir()
    stale.write_text("<svg/>")
    assert make_results("--root", checkout).returncode == 0
    assert not stale.exists()
    assert make_results("--root", checkout, "--check").returncode == 0
