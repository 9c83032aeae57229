"""``driftlaw tune``: its file, resuming, and that the benchmark's corruptions are an error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

from benchmarks.tune.command import tune
from driftlaw.cli import app as commands
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


def test_it_writes_all_trials_and_reuses_them(weights, tmp_path):
    grid = ("--grid", "tau=0.6,1.0", "--seeds", "1-2")
    done = invoke(weights, tmp_path, *grid, "--json")
    assert done.exit_code == 0, done.output
    document = json.loads((tmp_path / "embedded-tiny.json").read_text())
    assert json.loads(done.stdout) == document
    assert [trial["tried"] for trial in document["trials"]] == [{"tau": 1.0}, {"tau": 0.6}]
    records = [tmp_path / document["folder"] / name for trial in document["trials"] for name in trial["records"]]
    assert len(records) == 4
    before = {path: path.stat().st_mtime_ns for path in records}
    again = invoke(weights, tmp_path, *grid)
    assert again.exit_code == 0
    assert "Chosen from 2 trials: --set law.tau=" in again.stdout
    assert {path: path.stat().st_mtime_ns for path in records} == before
    assert json.loads((tmp_path / "embedded-tiny.json").read_text())["trials"] == document["trials"]


def test_the_choice_is_a_row_in_tables_of_the_same_model_only(weights, tmp_path, monkeypatch):
    monkeypatch.setenv("DRIFTLAW_DATA", str(tmp_path / "data"))
    grid = ("--grid", "learning_rate=5e-4", "--grid", "tau=0.6", "--search", "grid")
    out = ("--limit", "20", "--device", "cpu", "--out", str(tmp_path / "tuning"))
    # CIFAR-10 is not here: tuned on the embedded images, under the name that the benchmark has with these weights
    chosen = ("--model", str(weights), "--set", "stream.dataset=cifar10-embedded")
    done = CliRunner().invoke(app, ["cifar10-c", *chosen, *grid, *out])
    assert done.exit_code == 0, done.output
    assert "reproduce table1 --datasets cifar10-c --model" in done.stdout
    path = tmp_path / "tuning" / "cifar10-c-tiny.json"
    document = json.loads(path.read_text())
    assert len(document["model"]["sha256"]) == 64
    path.write_text(json.dumps(document | {"settings": {"learning_rate": 5e-4}}))  # whichever was chosen

    def rates(*model):
        words = ["reproduce", "table1", "--datasets", "cifar10-c", "--methods", "law", "--seeds", "1", "--dry-run"]
        planned = CliRunner().invoke(commands, [*words, "--json", "--out", str(tmp_path), *model])
        assert planned.exit_code == 0, planned.output
        return [cell["settings"]["learning_rate"] for cell in json.loads(planned.stdout)["cells"]]

    assert rates("--model", str(weights)) == [1e-3, 5e-4]
    assert rates("--network", "embedded") == [1e-3]
    assert rates() == [1e-3]


def test_a_file_made_with_other_weights_is_not_overwritten(weights, tmp_path):
    for name, seed in (("one", 1), ("two", 2)):
        torch.manual_seed(seed)
        save_model(build_model("wrn_10_1", num_classes=10), tmp_path / name / "same.safetensors")
    words = ["embedded", "--limit", "20", "--device", "cpu", "--grid", "tau=1.0", "--out", str(tmp_path), "--network"]
    assert CliRunner().invoke(app, [*words, str(tmp_path / "one" / "same.safetensors")]).exit_code == 0
    before = (tmp_path / "embedded-same.json").read_bytes()
    refused = CliRunner().invoke(app, [*words, str(tmp_path / "two" / "same.safetensors")])
    assert isinstance(refused.exception, UsageError)
    assert "other weights" in str(refused.exception)
    assert (tmp_path / "embedded-same.json").read_bytes() == before


def test_a_stream_much_shorter_than_the_benchmarks_is_a_warning(weights, tmp_path):
    short = invoke(weights, tmp_path, "--grid", "tau=1.0", "--rounds", "1")
    assert "driftlaw: ! The stream has 4 batches, the benchmark's " in short.stderr
    set_limit = ("--set", "stream.limit=20")
    assert "driftlaw: !" not in invoke(weights, tmp_path, "--grid", "tau=1.0", *set_limit).stderr


@pytest.mark.parametrize("corruptions", ["all", "fog", '["spatter","contrast"]'])
def test_benchmark_corruptions_are_an_error_before_anything_is_written(weights, tmp_path, corruptions):
    done = invoke(weights, tmp_path / "out", "--set", f"stream.corruptions={corruptions}")
    assert isinstance(done.exception, UsageError)
    assert "on which results are reported" in str(done.exception)
    assert not (tmp_path / "out").exists()
