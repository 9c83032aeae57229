"""``driftlaw tune``: what it writes, that it goes on where it was, and that it refuses to look at the fifteen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

from driftlaw.cli.tune import tune
from driftlaw.errors import UsageError
from driftlaw.models import build_model, save_model

app = typer.Typer()
app.command()(tune)


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "tiny.safetensors"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        save_model(build_model("wrn_10_1", num_classes=10), path)
    return path


def invoke(weights, out, *more):
    words = ["embedded", "--limit", "20", "--device", "cpu", "--set", f"model.weights={weights}", "--out", str(out)]
    return CliRunner().invoke(app, [*words, *more])


def test_it_writes_what_it_tried_and_does_not_run_it_again(weights, tmp_path):
    grid = ("--grid", "tau=0.6,1.0", "--seeds", "1-2")
    done = invoke(weights, tmp_path, *grid, "--json")
    assert done.exit_code == 0, done.output
    told = json.loads((tmp_path / "embedded.json").read_text())
    assert json.loads(done.stdout) == told
    assert [trial["tried"] for trial in told["trials"]] == [{"tau": 1.0}, {"tau": 0.6}]
    records = [tmp_path / told["folder"] / name for trial in told["trials"] for name in trial["records"]]
    assert len(records) == 4
    before = {path: path.stat().st_mtime_ns for path in records}
    again = invoke(weights, tmp_path, *grid)
    assert again.exit_code == 0
    assert "chosen of 2 trials: --set law.tau=" in again.stdout
    assert {path: path.stat().st_mtime_ns for path in records} == before
    assert json.loads((tmp_path / "embedded.json").read_text())["trials"] == told["trials"]


def test_a_stream_much_shorter_than_the_benchmarks_is_remarked_upon(weights, tmp_path):
    short = invoke(weights, tmp_path, "--grid", "tau=1.0", "--rounds", "1")
    assert "note: this stream is 4 batches long, the benchmark's " in short.stderr
    set_limit = ("--set", "stream.limit=20")
    assert "note:" not in invoke(weights, tmp_path, "--grid", "tau=1.0", *set_limit).stderr


@pytest.mark.parametrize("corruptions", ["all", "fog", '["spatter","contrast"]'])
def test_the_fifteen_are_refused_before_anything_is_written(weights, tmp_path, corruptions):
    done = invoke(weights, tmp_path / "out", "--set", f"stream.corruptions={corruptions}")
    assert isinstance(done.exception, UsageError)
    assert "on which results are reported" in str(done.exception)
    assert not (tmp_path / "out").exists()
