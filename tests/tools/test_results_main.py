"""Tests of ``python -m tools.results``."""

import pytest

from tests.reports.example_records import make_record, write_record
from tools.results.__main__ import main


@pytest.fixture
def checkout(tmp_path):
    for name, error in [("law", 20), ("tent", 25)]:
        write_record(make_record(name, [error] * 15), tmp_path / "results" / "table1" / "cifar10-c" / f"{name}.jsonl")
    return tmp_path


def test_stale_files_are_listed_and_regenerated(checkout, capsys):
    assert main(["--root", str(checkout), "--check"]) == 1
    assert "Out of date: RESULTS.md, results/figures/fig1b-" in capsys.readouterr().err
    assert not (checkout / "RESULTS.md").exists()
    stale = checkout / "results" / "figures" / "old.svg"
    stale.parent.mkdir()
    stale.write_text("<svg/>")
    assert main(["--root", str(checkout)]) == 0
    assert not stale.exists()
    assert main(["--root", str(checkout), "--check"]) == 0
