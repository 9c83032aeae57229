"""`python -m benchmarks train`, and `driftlaw train`, which runs it."""

import json
import os

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.train import loop
from driftlaw.datasets import registry
from driftlaw.errors import DataError, UsageError
from driftlaw.models import load_model
from driftlaw.records import read_lines
from tests.datasets import synthetic

TINY = ["--model", "wrn_10_1", "--device", "cpu", "--epochs", "1", "--set", "batch_size=25"]


def call(*words):
    """Return the command's stdout; raise the errors that the command line would print."""
    result = CliRunner().invoke(app, ["train", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


@pytest.fixture
def cifar10(tmp_path, monkeypatch):
    data = synthetic.splits()
    monkeypatch.setitem(registry.DATASETS, "cifar10", synthetic.info(data))
    synthetic.write_folder(data, tmp_path)
    monkeypatch.setenv("DRIFTLAW_DATA", str(tmp_path))
    return tmp_path


def test_weights_and_record_are_written_to_the_data_directory_under_a_name_for_load_model(cifar10):
    text = call(*TINY)
    weights = cifar10 / "weights" / "wrn_10_1-cifar10.safetensors"
    assert sorted(os.listdir(cifar10 / "weights")) == [weights.name, "wrn_10_1-cifar10.train.jsonl"]
    assert str(weights) in text
    assert "% accuracy on 20 test images" in text
    model = load_model("wrn_10_1-cifar10", num_classes=10)
    assert model.info["dataset"] == "cifar10"


def test_json_is_one_document_and_the_recipe_follows_the_options(cifar10, tmp_path):
    out = tmp_path / "elsewhere" / "net.safetensors"
    words = [*TINY, "--set", "weight_decay=1e-3", "--seed", "7", "--out", out]
    document = json.loads(call(*words, "--json"))
    assert document["weights"] == str(out)
    assert out.is_file()
    header, epoch, closing = read_lines(tmp_path / "elsewhere" / "net.train.jsonl")
    assert document["record"] == str(tmp_path / "elsewhere" / "net.train.jsonl")
    assert header["seed"] == 7
    assert header["recipe"]["weight_decay"] == 1e-3
    assert (header["recipe"]["epochs"], header["recipe"]["batch_size"], epoch["epoch"]) == (1, 25, 1)
    assert header["dataset"]["split"] == "train"
    assert closing["test"]["split"] == "test"
    assert document["accuracy"] == closing["accuracy"]


def test_augmix_and_normalization_are_settings_of_the_recipe(cifar10):
    call(*TINY, "--set", "augmentation=augmix", "--set", "normalise=half", "--set", "consistency_weight=6")
    model = load_model("wrn_10_1-cifar10")
    assert model.info["normalise"]["mean"] == [0.5, 0.5, 0.5]
    header = read_lines(cifar10 / "weights" / "wrn_10_1-cifar10.train.jsonl")[0]
    assert (header["recipe"]["augmentation"], header["recipe"]["consistency_weight"]) == ("augmix", 6)


def test_weights_are_named_after_cifar100(tmp_path):
    data = synthetic.splits(classes=100)
    synthetic.write_official_cifar100(data, tmp_path)
    with pytest.warns(UserWarning, match="not its published content"):
        call(*TINY, "--dataset", "cifar100", "--set", "batch_size=500", "--data-dir", tmp_path)
    assert load_model("wrn_10_1-cifar100", folder=tmp_path).info["num_classes"] == 100


def test_weights_are_named_after_a_folder_of_images(tmp_path):
    rng = np.random.default_rng(0)
    for class_folder in ("train/cat", "train/dog", "test/cat", "test/dog"):
        (tmp_path / "pets" / class_folder).mkdir(parents=True)
        for number in range(3):
            noise = rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(noise).save(tmp_path / "pets" / class_folder / f"{number}.png")
    call(*TINY, "--dataset", f"folder:{tmp_path / 'pets'}", "--data-dir", tmp_path / "data")
    assert load_model("wrn_10_1-pets", folder=tmp_path / "data").info["num_classes"] == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "epoch=3"], "Unknown setting 'epoch'. Did you mean 'epochs'"),
        (["--set", "batch_size"], "expected key=value"),
        (["--epochs", "0"], "epochs = 0"),
        (["--set", "augmentation=mixup"], "augmentation = 'mixup'"),
        (["--device", "gpu"], "torch has no device 'gpu'"),
        (["--dataset", "cifar1"], "Unknown dataset 'cifar1'. Did you mean 'cifar10'"),
        (["--dataset", "cifar10-embedded"], "Unknown split of cifar10-embedded 'train'"),
        (["--model", "wnr_28_10"], "Unknown model 'wnr_28_10'. Did you mean 'wrn_28_10'"),
        (["--out", "net.pt"], r"--out is net\.pt\. Expected a file that ends in \.safetensors"),
    ],
)
def test_wrong_options_are_refused_and_nothing_is_written(cifar10, words, message):
    with pytest.raises(UsageError, match=message):
        call(*TINY, *words)
    assert os.listdir(cifar10) == ["cifar-10-batches-py"]


def test_missing_data_are_reported_with_the_command_to_get_them(tmp_path):
    with pytest.raises(DataError, match="Run `driftlaw data get cifar10`"):
        call(*TINY, "--data-dir", tmp_path)
    assert os.listdir(tmp_path) == []


def test_wrong_settings_are_reported_before_data_are_read(tmp_path):
    with pytest.raises(UsageError, match="Unknown setting"):
        call(*TINY, "--set", "epoch=3", "--data-dir", tmp_path)


def test_an_interrupted_training_resumes_with_the_same_command(cifar10, monkeypatch):
    words = [*TINY, "--epochs", "3", "--json"]
    complete = json.loads(call(*words, "--out", cifar10 / "a.safetensors"))
    original, lines = loop._TrainingRun.train_epoch, []

    def train_epoch(self, interrupt):
        if len(lines) == 2:
            raise KeyboardInterrupt
        lines.append(original(self, interrupt))
        return lines[-1]

    with monkeypatch.context() as patched:
        patched.setattr(loop._TrainingRun, "train_epoch", train_epoch)
        result = CliRunner().invoke(app, ["train", *words, "--out", str(cifar10 / "b.safetensors")])
    assert result.exit_code == 130
    assert (cifar10 / "b.checkpoint.pt").exists()
    again = json.loads(call(*words, "--out", cifar10 / "b.safetensors"))
    assert again["file_sha256"] == complete["file_sha256"]
    assert not (cifar10 / "b.checkpoint.pt").exists()
