"""``driftlaw run --data``: a folder of images instead of the preset's stream."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from driftlaw.cli import app
from driftlaw.errors import DataError, UsageError
from driftlaw.experiments import plan_run
from driftlaw.models import build_model, save_model
from driftlaw.records import read_record


@pytest.fixture
def weights(tmp_path) -> Path:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        save_model(build_model("wrn_10_1", num_classes=2), tmp_path / "tiny.safetensors")
    return tmp_path / "tiny.safetensors"


def write_images(folder: Path, *, classes: tuple[str, ...] = ("",)) -> Path:
    for number in range(12):
        path = folder / classes[number % len(classes)] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 16), (20 * number, 0, 99)).save(path)
    return folder


def run(folder: Path, weights: Path, *more: str):
    out = folder.parent / "runs"
    words = ["run", "--data", f"{folder}/", "--model", str(weights), "--methods", "source,norm", "--out", str(out)]
    return CliRunner().invoke(app, [*words, "--device", "cpu", *more], catch_exceptions=False)


def test_class_folders_give_errors(weights, tmp_path):
    folder = write_images(tmp_path / "photos", classes=("cat", "dog"))
    done = run(folder, weights, "--json", "--set", "stream.batch_size=5")
    runs = json.loads(done.stdout)["runs"]
    assert [item["method"] for item in runs] == ["source", "norm"]
    assert all(set(item["error_by_domain"]) == {"clean"} for item in runs)
    record = read_record(Path(runs[0]["record"]))
    assert record.path.name.startswith("photos-source-seed1-")
    stream = record.header["stream"]
    assert (stream["dataset"]["name"], stream["dataset"]["count"]) == (f"folder:{folder}", 12)
    assert [line["images"] for line in record.batches] == [5, 5, 2]


def test_a_flat_folder_gives_a_table_without_errors(weights, tmp_path):
    folder = write_images(tmp_path / "frames")
    done = run(folder, weights)
    assert done.exit_code == 0
    assert "–" in done.stdout
    assert "no labels" in done.stdout
    again = json.loads(run(folder, weights, "--json").stdout)["runs"]
    assert [(item["mean_error"], item["error_by_domain"]) for item in again] == [(None, {})] * 2
    page = tmp_path / "page.html"
    report = CliRunner().invoke(app, ["report", str(tmp_path / "runs"), "--out", str(page)])
    assert report.exit_code == 0
    assert "no labels" in page.read_text(encoding="utf-8")


def test_corruptions_are_optional(weights, tmp_path):
    folder = write_images(tmp_path / "frames")
    done = run(folder, weights, "--set", 'stream.corruptions=["clean", "fog"]', "--limit", "4", "--json")
    record = read_record(Path(json.loads(done.stdout)["runs"][0]["record"]))
    assert [(line["domain"]["name"], line["images"]) for line in record.batches] == [("clean", 4), ("fog", 4)]


def test_the_preset_gives_methods_and_model_but_no_stream():
    (spec,) = plan_run("cifar10-c", data=Path("photos"), methods="law")
    assert spec.stream == {"corruptions": ["clean"], "batch_size": 64, "dataset": "folder:photos"}
    assert spec.settings["learning_rate"] == plan_run("cifar10-c", methods="law")[0].settings["learning_rate"]


def test_wrong_folders_are_refused(weights, tmp_path):
    with pytest.raises(DataError, match="missing does not exist"):
        run(tmp_path / "missing", weights)
    folder = write_images(tmp_path / "photos", classes=("a", "b", "c"))
    with pytest.raises(UsageError, match=r"2 output classes, but the stream has 3\. .* without sub-folders"):
        run(folder, weights)
