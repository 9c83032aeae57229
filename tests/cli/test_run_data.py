"""``driftlaw run --data``: a folder of images instead of the preset's stream."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from driftlaw.cli import app
from driftlaw.errors import DataError, DriftlawWarning, UsageError
from driftlaw.experiments import plan_run
from driftlaw.models import build_model, save_model
from driftlaw.records import read_record
from tests.datasets.shard_files import png, tar, write_shards


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


def test_shards_are_streamed_with_workers_and_recognised_when_they_change(weights, tmp_path):
    pattern = write_shards(tmp_path / "shards")  # labels 0 to 2
    words = ["run", "--data", pattern, "--model", str(weights), "--methods", "norm", "--device", "cpu", "--json"]
    words += ["--out", str(tmp_path / "runs"), "--set", "stream.batch_size=4", "--workers", "1"]
    with pytest.raises(UsageError, match="The model has 2 output classes, but the stream has 3"):
        CliRunner().invoke(app, words, catch_exceptions=False)
    for number in range(3):
        files = {f"{number}{image}.png": png(image) for image in range(5)}
        labels = {f"{number}{image}.cls": str(image % 2).encode() for image in range(5)}
        (tmp_path / "shards" / f"{number:02d}.tar").write_bytes(tar(dict(sorted((files | labels).items()))))
    done = json.loads(CliRunner().invoke(app, words, catch_exceptions=False).stdout)["runs"][0]
    record = read_record(Path(done["record"]))
    assert record.path.name.startswith("00..02-norm-seed1-")
    assert [line["images"] for line in record.batches] == [4, 4, 4, 3]
    assert record.header["stream"]["dataset"]["origin"] == "3 WebDataset shards, as they are"
    (tmp_path / "shards" / "02.tar").write_bytes(tar({"a.png": png(1), "a.cls": b"1"}))
    with pytest.warns(DriftlawWarning, match="was made with other images"):
        CliRunner().invoke(app, words, catch_exceptions=False)
