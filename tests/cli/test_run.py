"""``driftlaw run``: what it prints and writes, what it refuses, and that a kill -9 costs nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from driftlaw.models import build_model, save_model


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "tiny.safetensors"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        save_model(build_model("wrn_10_1", num_classes=10), path)
    return path


def command(weights: Path, out: Path, *more: str) -> list[str]:
    small = ["--limit", "40", "--set", "stream.batch_size=20", "--set", f"model.weights={weights}"]
    few = ["--set", 'stream.corruptions=["gaussian_noise","fog","contrast"]']
    return [
        sys.executable,
        "-m",
        "driftlaw",
        "run",
        "embedded",
        *small,
        *few,
        "--out",
        str(out),
        "--device",
        "cpu",
        *more,
    ]


def call(arguments: list[str]) -> subprocess.CompletedProcess:
    return subprocess.run(arguments, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})


def test_json_gives_one_document_and_a_record_a_run(weights, tmp_path):
    done = call(command(weights, tmp_path, "--methods", "source,law", "--seeds", "1-2", "--json"))
    assert done.returncode == 0, done.stderr
    runs = json.loads(done.stdout)["runs"]
    assert [(run["method"], run["seed"]) for run in runs] == [("source", 1), ("source", 2), ("law", 1), ("law", 2)]
    assert set(runs[0]["error_by_domain"]) == {"gaussian_noise", "fog", "contrast"}
    assert all(Path(run["record"]).exists() for run in runs)


def test_the_table_names_methods_and_corruptions(weights, tmp_path):
    done = call(command(weights, tmp_path, "--methods", "norm"))
    assert done.returncode == 0, done.stderr
    assert "BN-1" in done.stdout
    assert "contrast" in done.stdout


def test_a_dry_run_writes_nothing(weights, tmp_path):
    done = call(command(weights, tmp_path / "out", "--dry-run", "--json"))
    assert [cell["method"] for cell in json.loads(done.stdout)["cells"]] == ["source", "norm", "tent", "law"]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--methods", "lew"], "Did you mean 'law'"),
        (["--set", "law.taw=0.6"], "Did you mean 'tau'"),
        (["--set", "laww.tau=0.6"], "Did you mean 'law'"),
        (["--set", "stream.schedul=mixed"], "Did you mean 'schedule'"),
        (["--set", "stream.corruptions=['fogg']"], "Did you mean 'fog'"),
        (["--set", "stream.severity=7"], "severity"),
        (["--seeds", "one"], "--seeds"),
        (["--device", "cuda:99"], "cuda:99"),
        (["--set", "model.weights=wrn_28_10-cifar10"], "driftlaw train"),
        (["--set", "stream.dataset=cifar11"], "Did you mean 'cifar10"),
    ],
)
def test_wrong_use_is_told_in_words_with_exit_code_2(weights, tmp_path, more, told):
    done = call(command(weights, tmp_path / "out", *more))
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_an_unknown_preset_names_its_neighbour(tmp_path):
    done = call([sys.executable, "-m", "driftlaw", "run", "embeded"])
    assert done.returncode == 2
    assert "Did you mean 'embedded'" in done.stderr


def without_timings(path: Path) -> list[dict]:
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    return [{key: value for key, value in line.items() if key not in ("timing", "command")} for line in lines]


@pytest.mark.parametrize(("struck_with", "exit_code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)])
def test_after_a_kill_the_same_command_ends_in_the_same_record(weights, tmp_path, struck_with, exit_code):
    more = ["--methods", "law", "--set", "stream.batch_size=4", "--checkpoint-seconds", "0"]
    assert call(command(weights, tmp_path / "undisturbed", *more)).returncode == 0
    struck = command(weights, tmp_path / "struck", *more)
    under_way = subprocess.Popen(struck, stderr=subprocess.DEVNULL, env=os.environ | {"OMP_NUM_THREADS": "1"})
    while not any(path.read_bytes().count(b"\n") > 6 for path in (tmp_path / "struck").glob("*.jsonl")):
        assert under_way.poll() is None, "it ended before it could be struck"
        time.sleep(0.01)
    under_way.send_signal(struck_with)
    assert under_way.wait() == exit_code
    (record,) = (tmp_path / "struck").glob("*.jsonl")
    assert b'"closing"' not in record.read_bytes()
    assert call(struck).returncode == 0
    (undisturbed,) = (tmp_path / "undisturbed").glob("*.jsonl")
    assert without_timings(record) == without_timings(undisturbed)
    assert record.name == undisturbed.name


def test_another_setting_goes_to_another_record(weights, tmp_path):
    call(command(weights, tmp_path, "--methods", "tent"))
    call(command(weights, tmp_path, "--methods", "tent", "--set", "tent.learning_rate=0.01"))
    assert len(list(tmp_path.glob("*.jsonl"))) == 2


# --- methods that need the training data -----------------------------------------------------------------------------


def folder_of_pictures(root: Path, classes: int = 10, size: int = 32) -> Path:
    generator = np.random.default_rng(0)
    for split in ("train", "test"):
        for label in range(classes):
            place = root / split / f"class{label}"
            place.mkdir(parents=True)
            for number in range(2):
                pixels = generator.integers(256, size=(size, size, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(place / f"{number}.png")
    return root


def test_the_refusal_has_exit_code_2_and_writes_nothing(weights, tmp_path):
    done = call(command(weights, tmp_path / "out", "--methods", "source,rmt"))
    assert done.returncode == 2
    assert "needed by rmt" in done.stderr
    assert not (tmp_path / "out").exists()


def test_the_train_split_of_the_streams_dataset_is_handed_to_it(weights, tmp_path):
    pictures = folder_of_pictures(tmp_path / "pictures")
    data = tmp_path / "data"
    more = ["--set", f"stream.dataset=folder:{pictures}", "--set", "rmt.source_batch_size=10"]
    done = call(command(weights, tmp_path, "--methods", "rmt,gtta", *more, "--data-dir", str(data), "--json"))
    assert done.returncode == 0, done.stderr
    assert [run["method"] for run in json.loads(done.stdout)["runs"]] == ["rmt", "gtta"]
    assert len(list((data / "cache").glob("rmt-*.pt"))) == 2


# --- more than error -------------------------------------------------------------------------------------------------


def test_measures_that_are_asked_for_stand_in_the_record(weights, tmp_path):
    done = call(command(weights, tmp_path, "--methods", "norm", "--measures", "calibration"))
    assert done.returncode == 0, done.stderr
    (record,) = tmp_path.glob("*.jsonl")
    assert "calibration" in json.loads(record.read_bytes().splitlines()[0])["measures"]
