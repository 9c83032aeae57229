"""``driftlaw run``: output, records, errors, and resuming after a signal."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from driftlaw.cli import main
from driftlaw.files import sha256_of
from driftlaw.models import build_model, load_model, save_model, weights_sha256
from driftlaw.records import read_record
from driftlaw.settings import read_preset


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "tiny.safetensors"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        save_model(build_model("wrn_10_1", num_classes=10), path)
    return path


def command(weights: Path | None, out: Path, *more: str) -> list[str]:
    small = ["--limit", "40", "--set", "stream.batch_size=20"]
    small += ["--set", f"model.weights={weights}"] if weights else []
    few = ["--set", 'stream.corruptions=["gaussian_noise","fog","contrast"]']
    return ["run", "embedded", *small, *few, "--out", str(out), "--device", "cpu", *more]


def call(arguments: list[str]) -> subprocess.CompletedProcess:
    """Run ``driftlaw`` in this process, which need not import torch again."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["driftlaw", *arguments])
        patch.setenv("DRIFTLAW_QUIET", "")
        patch.setattr("driftlaw.base.small_batches.FULL_BATCH", 32)
        with pytest.raises(SystemExit) as ended:
            main()
    return subprocess.CompletedProcess(arguments, ended.value.code or 0, out.getvalue(), err.getvalue())


def call_process(*arguments: str) -> subprocess.CompletedProcess:
    command_line = [sys.executable, *arguments]
    return subprocess.run(command_line, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})


def test_segmentation_without_a_download_has_mean_iou(tmp_path):
    few = ["--limit", "12", "--set", 'stream.corruptions=["clean","frost"]', "--set", "step.statistics=batch"]
    done = call(["run", "shapes", "--methods", "source,tent", *few, "--out", str(tmp_path), "--json"])
    source, tent = json.loads(done.stdout)["runs"]
    assert source["mean_iou_by_domain"]["clean"] > 80  # a sensible task
    assert tent["mean_iou_by_domain"]["frost"] > source["mean_iou_by_domain"]["frost"] + 10
    assert tent["mean_iou"] == pytest.approx(sum(tent["mean_iou_by_domain"].values()) / 2, abs=1e-3)
    assert list(tent["iou_by_class"]) == ["background", "disk", "square", "triangle", "cross"]
    table = call(["run", "shapes", "--methods", "source,tent", *few, "--out", str(tmp_path)]).stdout
    assert "Mean IoU by domain" in table


def test_json_is_one_document_and_every_run_has_a_record(weights, tmp_path):
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
    assert [cell["method"] for cell in json.loads(done.stdout)["cells"]] == read_preset("embedded")["default_methods"]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--methods", "lew"], "Did you mean 'law'"),
        (["--set", "law.taw=0.6"], "Did you mean 'tau'"),
        (["--set", "laww.tau=0.6"], "Did you mean 'law'"),
        (["--set", "stream.schedul=mixed"], "Did you mean 'schedule'"),
        (["--set", "stream.corruptions=['fogg']"], "Did you mean 'fog'"),
        (["--set", "stream.severity=7"], "severity"),
        (["--seeds", "one"], "--seeds"),
        (["--device", "cuda:99"], "cuda:99"),
        (["--set", "model.weights=wrn_28_10-cifar10"], "python -m benchmarks train"),
        (["--set", "stream.dataset=cifar11"], "Did you mean 'cifar10"),
    ],
)
def test_wrong_use_exits_with_2_and_a_message(weights, tmp_path, more, message):
    done = call(command(weights, tmp_path / "out", *more))
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_an_unknown_preset_gets_a_suggestion(tmp_path):
    done = call(["run", "embeded"])
    assert done.returncode == 2
    assert "Did you mean 'embedded'" in done.stderr


def without_timings(path: Path) -> list[dict]:
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    return [{key: value for key, value in line.items() if key not in ("timing", "command")} for line in lines]


SIGNAL_AFTER_SIX_STEPS = """
import os, signal, sys
from driftlaw.cli import console, main

number = int(sys.argv.pop(1))
stepped = console.RunProgress.stepped

def stepped_or_signal(self, spec, done):
    stepped(self, spec, done)
    if done == 6:
        os.kill(os.getpid(), number)

console.RunProgress.stepped = stepped_or_signal
main()
"""


INTERRUPTED_RUN = ["--methods", "law", "--set", "stream.batch_size=4", "--checkpoint-seconds", "0"]


@pytest.fixture(scope="module")
def undisturbed(weights, tmp_path_factory) -> Path:
    """Return the record of the run without an interruption."""
    out = tmp_path_factory.mktemp("undisturbed")
    assert call(command(weights, out, *INTERRUPTED_RUN)).returncode == 0
    (record,) = out.glob("*.jsonl")
    return record


@pytest.mark.parametrize(
    ("number", "exit_code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_an_interrupted_run_resumes_and_ends_with_the_same_record(weights, tmp_path, undisturbed, number, exit_code):
    arguments = command(weights, tmp_path / "interrupted", *INTERRUPTED_RUN)
    interrupted = call_process("-c", SIGNAL_AFTER_SIX_STEPS, str(int(number)), *arguments)
    assert interrupted.returncode == exit_code, interrupted.stderr
    assert ("Run the same command again to resume." in interrupted.stderr) == (number != signal.SIGKILL)
    (record,) = (tmp_path / "interrupted").glob("*.jsonl")
    assert b'"closing"' not in record.read_bytes()
    resumed = call(arguments)
    assert resumed.returncode == 0, resumed.stderr
    assert re.search(r": resumed after \d+ of \d+ steps", resumed.stderr) or number == signal.SIGKILL
    assert without_timings(record) == without_timings(undisturbed)
    assert record.name == undisturbed.name


def test_progress_lines_are_printed_without_a_terminal_unless_quiet(weights, tmp_path):
    lines = call(command(weights, tmp_path, "--methods", "source,norm")).stderr.splitlines()
    assert lines[0] == "embedded source seed 1: started, 6 steps"
    assert re.fullmatch(
        r"\[1/2\] embedded source seed 1: \d+\.\d\d % error, [\d.]+ s; about [\d.]+ s left, [\d.]+ runs per minute",
        lines[1],
    )
    assert lines[2] == "embedded norm seed 1: started, 6 steps"
    assert re.fullmatch(r"\[2/2\] embedded norm seed 1: \d+\.\d\d % error, [\d.]+ s", lines[3])
    again = call(command(weights, tmp_path, "--methods", "source")).stderr
    assert re.fullmatch(
        r"\[1/1\] embedded source seed 1: [\d.]+ % error, from its finished record \(--overwrite .*\)\n", again
    )
    quiet = call(["-q", *command(weights, tmp_path / "other", "--methods", "source")])
    assert (quiet.returncode, quiet.stderr) == (0, "")


def test_a_record_of_an_earlier_format_is_renamed_and_the_run_repeated(weights, tmp_path):
    assert call(command(weights, tmp_path, "--methods", "source")).returncode == 0
    (record,) = tmp_path.glob("*.jsonl")
    record.write_bytes(record.read_bytes().replace(b"driftlaw-run-1", b"driftlaw-run-0", 1))
    again = call(command(weights, tmp_path, "--methods", "source"))
    assert again.returncode == 0, again.stderr
    assert f"driftlaw: ! {record} was made by an incompatible version" in again.stderr
    assert b"driftlaw-run-1" in record.read_bytes()
    assert b"driftlaw-run-0" in record.with_name(record.name + ".old").read_bytes()


def test_other_settings_have_another_record(weights, tmp_path):
    call(command(weights, tmp_path, "--methods", "tent"))
    call(command(weights, tmp_path, "--methods", "tent", "--set", "tent.learning_rate=0.01"))
    assert len(list(tmp_path.glob("*.jsonl"))) == 2


# --- methods that need the training data -----------------------------------------------------------------------------


def image_folder(root: Path, classes: int = 10, size: int = 32) -> Path:
    generator = np.random.default_rng(0)
    for split in ("train", "test"):
        for label in range(classes):
            folder = root / split / f"class{label}"
            folder.mkdir(parents=True)
            for number in range(2):
                pixels = generator.integers(256, size=(size, size, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{number}.png")
    return root


def test_missing_training_data_exits_with_2_and_writes_nothing(weights, tmp_path):
    done = call(command(weights, tmp_path / "out", "--methods", "source,rmt"))
    assert done.returncode == 2
    assert "needed by rmt" in done.stderr
    assert not (tmp_path / "out").exists()


def test_training_data_is_the_train_split_of_the_streams_dataset(weights, tmp_path):
    images = image_folder(tmp_path / "images")
    data = tmp_path / "data"
    more = ["--set", f"stream.dataset=folder:{images}", "--set", "rmt.source_batch_size=10"]
    more += ["--set", "step.statistics=batch"]  # small batches are collected otherwise, and the run has no update
    done = call(command(weights, tmp_path, "--methods", "rmt,gtta", *more, "--data-dir", str(data), "--json"))
    assert done.returncode == 0, done.stderr
    assert [run["method"] for run in json.loads(done.stdout)["runs"]] == ["rmt", "gtta"]
    assert len(list((data / "cache").glob("rmt-*.pt"))) == 2


# --- extra metrics --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["--metrics", "--measures"])
def test_requested_metrics_are_in_the_record(weights, tmp_path, option):
    done = call(command(weights, tmp_path, "--methods", "norm", option, "calibration"))
    assert done.returncode == 0, done.stderr
    (record,) = tmp_path.glob("*.jsonl")
    assert "calibration" in json.loads(record.read_bytes().splitlines()[0])["measures"]


NETWORK = """
from torch import nn


def make():
    return nn.Sequential(nn.Conv2d(3, 4, 8, 4), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(196, 10))
"""
METHOD = """
from driftlaw.base import Adapter, StepOutput


class Mine(Adapter, name="mine"):
    def update(self, images, plan):
        return StepOutput(self.model(images) * 1)
"""


def test_own_network_checkpoint_and_method(tmp_path):
    network, method, checkpoint = tmp_path / "mynet.py", tmp_path / "mine.py", tmp_path / "trained.pth"
    network.write_text(NETWORK)
    method.write_text(METHOD)
    weights = {f"module.{key}": value for key, value in load_model(f"{network}:make").network.state_dict().items()}
    torch.save({"state_dict": {key: value + 1 for key, value in weights.items()}}, checkpoint)
    arguments = ["--methods", f"source,{method}", "--network", f"{network}:make", "--checkpoint", str(checkpoint)]
    first = call(command(None, tmp_path / "runs", *arguments, "--json"))
    assert first.returncode == 0, first.stderr
    source, mine = (read_record(Path(run["record"])) for run in json.loads(first.stdout)["runs"])
    assert mine.method == "mine"
    assert mine.mean_error == source.mean_error
    assert mine.header["method_file"] == {"name": "mine.py", "sha256": sha256_of(method)}
    model = mine.header["model"]
    assert (model["name"], model["weights"]) == ("mynet.py:make", "trained.pth")
    assert model["file_sha256"] == sha256_of(network)
    assert model["sha256"] == weights_sha256(load_model(f"{network}:make", checkpoint=checkpoint))

    method.write_text(METHOD.replace("* 1", "* -1"))  # a changed method must not reuse the old record
    second = call(command(None, tmp_path / "runs", *arguments, "--json"))
    assert "before the method's file changed" in second.stderr
    assert json.loads(second.stdout)["runs"][1]["mean_error"] != round(mine.mean_error, 4)
