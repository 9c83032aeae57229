"""``driftlaw reproduce``: a table of the paper without any data; reuse, skipped runs and errors."""

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

TABLE_1 = ["table1", "--datasets", "cifar10-c", "--limit", "10", "--seeds", "1", "--methods", "source,norm,law"]


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """The command of the README, on fewer images, without data and weights."""
    folder = tmp_path_factory.mktemp("reproduce")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "DRIFTLAW_DATA": str(folder / "data"), "COLUMNS": "100"}
    command = [sys.executable, "-m", "driftlaw", "reproduce", *TABLE_1, "--device", "cpu"]
    return folder, subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)


@pytest.fixture
def again(first, monkeypatch):
    """Run further commands in the same folder."""
    monkeypatch.chdir(first[0])
    return lambda *arguments: CliRunner().invoke(app, ["reproduce", *arguments, "--device", "cpu"])


def test_without_data_the_embedded_fallback_is_used_and_reported(first):
    folder, done = first
    assert done.returncode == 0, done.stderr
    assert "driftlaw: ! cifar10-c cannot be run here" in done.stderr
    assert "python -m benchmarks train --dataset cifar10 --model wrn_28_10" in done.stderr
    assert "[3/3] embedded law seed 1:" in done.stderr
    for text in ("table1, embedded", "BN-1", "LAW", "cifar10-embedded test", "wrn_16_1", "10 images per domain"):
        assert text in done.stdout
    assert "Differences from the paper:" in done.stdout
    records = sorted(path.name.split("-seed")[0] for path in folder.glob("results/table1/embedded/*.jsonl"))
    assert records == ["embedded-law", "embedded-norm", "embedded-source"]


def test_finished_runs_are_reused_and_can_be_compressed(first, again):
    done = again(*TABLE_1, "--json", "--compress")
    assert done.exit_code == 0, done.output
    assert "3 of 3 runs are already finished" in done.stderr
    document = json.loads(done.stdout)
    assert (document["experiment"], document["failed"], document["left_out"]) == ("table1", [], [])
    assert [(run["dataset"], run["method"]) for run in document["runs"]] == [
        *(("embedded", "source"), ("embedded", "norm"), ("embedded", "law")),
    ]
    assert all(run["record"].endswith(".jsonl.gz") and Path(run["record"]).exists() for run in document["runs"])


def test_skipped_runs_are_reported_and_the_exit_code_is_3(first, again):
    done = again("table1", "--limit", "10", "--seeds", "1", "--methods", "source,gtta", "--json")
    assert done.exit_code == 3
    assert "skipped 1 run (embedded gtta): The method needs training data." in done.stderr
    assert "driftlaw data get cifar100" in done.stderr
    assert len(json.loads(done.stdout)["left_out"]) == 3


def test_a_dry_run_lists_the_state_of_every_run_and_writes_nothing(first, again):
    before = sorted(first[0].rglob("*"))
    done = again("table3", "--datasets", "cifar10-c", "--limit", "10", "--seeds", "1", "--dry-run", "--json")
    assert done.exit_code == 0
    states = {cell["method"]: cell["state"] for cell in json.loads(done.stdout)["cells"]}
    assert states == {"tent": "to run", "autorgn": "to run", "law": "copied"}
    assert sorted(first[0].rglob("*")) == before


def test_records_are_reused_in_another_experiment(first, again):
    done = again("table3", "--datasets", "cifar10-c", "--limit", "10", "--seeds", "1", "--methods", "law")
    assert done.exit_code == 0, done.output
    assert len(list(first[0].glob("results/table3/embedded/embedded-law-*"))) == 1


def test_no_possible_run_is_an_error_that_names_what_is_missing(first, again):
    done = again("fig1b", "--seeds", "1", "--methods", "source")
    assert isinstance(done.exception, DataError)
    assert "python -m benchmarks train --dataset cifar100" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tabel1"], "Did you mean 'table1'"),
        (["table1", "--datasets", "cifar10"], "Did you mean 'cifar10-c'"),
        (["table1", "--methods", "lew"], "Did you mean 'law'"),
        (["table1", "--seeds", "one"], "--seeds"),
    ],
)
def test_wrong_use_is_an_error(again, arguments, message):
    error = again(*arguments).exception
    assert isinstance(error, UsageError)
    assert message in str(error)


def test_the_help_names_every_experiment():
    text = str(reproduce.__annotations__["name"])
    for name in EXPERIMENTS:
        assert name in text or name.startswith("table")
