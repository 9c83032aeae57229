"""``driftlaw reproduce``: the paper's table from one command, with no data at hand; what it skips, says and refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from driftlaw.cli import app
from driftlaw.cli.reproduce import reproduce
from driftlaw.errors import DataError, UsageError
from driftlaw.experiments import EXPERIMENTS

TABLE_1 = ["table1", "--datasets", "cifar10-c", "--limit", "40", "--seeds", "1", "--methods", "source,norm,law"]


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """The command of the README, on fewer images, where there is neither data nor weights."""
    place = tmp_path_factory.mktemp("reproduce")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "DRIFTLAW_DATA": str(place / "data"), "COLUMNS": "100"}
    command = [sys.executable, "-m", "driftlaw", "reproduce", *TABLE_1, "--device", "cpu"]
    return place, subprocess.run(command, capture_output=True, text=True, env=environment, cwd=place)


@pytest.fixture
def again(first, monkeypatch):
    """Gives further commands in the same place."""
    monkeypatch.chdir(first[0])
    return lambda *arguments: CliRunner().invoke(app, ["reproduce", *arguments, "--device", "cpu"])


def test_the_table_is_made_on_the_embedded_network_and_says_so(first):
    place, done = first
    assert done.returncode == 0, done.stderr
    assert "driftlaw: ! cifar10-c cannot be run here" in done.stderr
    assert "driftlaw train --dataset cifar10 --model wrn_28_10" in done.stderr
    assert "[3/3] embedded law seed 1:" in done.stderr
    for told in ("table1, embedded", "BN-1", "LAW", "cifar10-embedded test", "wrn_16_1", "40 images per domain"):
        assert told in done.stdout
    assert "Differences from the paper:" in done.stdout
    records = sorted(path.name.split("-seed")[0] for path in place.glob("results/table1/embedded/*.jsonl"))
    assert records == ["embedded-law", "embedded-norm", "embedded-source"]


def test_cells_whose_record_is_there_are_skipped_and_may_be_compressed(first, again):
    done = again(*TABLE_1, "--json", "--compress")
    assert done.exit_code == 0, done.output
    assert "3 of 3 cells have their record already" in done.stderr
    told = json.loads(done.stdout)
    assert (told["experiment"], told["failed"], told["left_out"]) == ("table1", [], [])
    assert [(run["dataset"], run["method"]) for run in told["runs"]] == [
        *(("embedded", "source"), ("embedded", "norm"), ("embedded", "law")),
    ]
    assert all(run["record"].endswith(".jsonl.gz") and Path(run["record"]).exists() for run in told["runs"])


def test_what_is_left_out_is_told_and_the_exit_code_is_that_of_partial_results(first, again):
    done = again("table1", "--limit", "40", "--seeds", "1", "--methods", "source,gtta", "--json")
    assert done.exit_code == 3
    assert "left out, 1 cell (embedded gtta): the training data is needed" in done.stderr
    assert "driftlaw data get cifar100" in done.stderr
    assert len(json.loads(done.stdout)["left_out"]) == 3


def test_a_dry_run_says_what_is_there_and_what_would_be_copied_and_writes_nothing(first, again):
    before = sorted(first[0].rglob("*"))
    done = again("table3", "--datasets", "cifar10-c", "--limit", "40", "--seeds", "1", "--dry-run", "--json")
    assert done.exit_code == 0
    states = {cell["method"]: cell["state"] for cell in json.loads(done.stdout)["cells"]}
    assert states == {"tent": "to run", "autorgn": "to run", "law": "copied"}
    assert sorted(first[0].rglob("*")) == before


def test_another_experiment_takes_over_the_cells_they_share(first, again):
    done = again("table3", "--datasets", "cifar10-c", "--limit", "40", "--seeds", "1", "--methods", "law")
    assert done.exit_code == 0, done.output
    assert len(list(first[0].glob("results/table3/embedded/embedded-law-*"))) == 1


def test_nothing_at_all_is_an_error_that_says_what_is_missing(first, again):
    done = again("fig1b", "--seeds", "1", "--methods", "source")
    assert isinstance(done.exception, DataError)
    assert "driftlaw train --dataset cifar100" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["tabel1"], "Did you mean 'table1'"),
        (["table1", "--datasets", "cifar10"], "Did you mean 'cifar10-c'"),
        (["table1", "--methods", "lew"], "Did you mean 'law'"),
        (["table1", "--seeds", "one"], "--seeds"),
    ],
)
def test_wrong_use_is_told(again, arguments, told):
    error = again(*arguments).exception
    assert isinstance(error, UsageError)
    assert told in str(error)


def test_the_help_names_every_experiment():
    told = str(reproduce.__annotations__["name"])
    for name in EXPERIMENTS:
        assert name in told or name.startswith("table")
