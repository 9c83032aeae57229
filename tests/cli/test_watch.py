"""``driftlaw watch``: output, exit codes, and continuing after signals."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from PIL import Image
from typer.testing import CliRunner

from driftlaw import cli
from driftlaw.cli.adapter import load_adapter
from driftlaw.datasets import load_dataset
from driftlaw.errors import UsageError


def write_images(folder, numbers):
    folder.mkdir(exist_ok=True)
    for number, image in zip(numbers, load_dataset("cifar10-embedded").images(numbers), strict=True):
        temporary = folder / f".{number}.png"
        Image.fromarray(image).save(temporary)
        temporary.rename(folder / f"{number}.png")
    return folder


def watch(*words):
    """Run the command in this process until all images have a line; returns its output and messages."""
    result = CliRunner().invoke(cli.app, ["watch", *words, "--method", "tent", "--device", "cpu", "--once"])
    assert result.exit_code == 0, result.exception
    return result.stdout, result.stderr


def end_after(lines, path, signal_number, *words):
    """Start the command in a process, send a signal when the file has some lines, and return how it ended."""
    process = subprocess.Popen(
        [sys.executable, "-m", "driftlaw", "watch", *words, "--method", "tent", "--device", "cpu"],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while process.poll() is None and not (path.exists() and len(path.read_text().splitlines()) >= lines):
        time.sleep(0.01)
    process.send_signal(signal_number)
    stdout, stderr = process.communicate()
    assert stdout == ""
    return process.returncode, stderr


def files(text):
    return [json.loads(line)["file"] for line in text.splitlines()]


@pytest.mark.small_batches
def test_lines_are_printed_and_the_same_command_continues(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = write_images(tmp_path / "in", range(4))
    stdout, stderr = watch("in")
    assert files(stdout) == ["0.png", "1.png", "2.png", "3.png"]
    assert json.loads(stdout.splitlines()[0])["label"] in load_dataset("cifar10-embedded").class_names
    (path,) = (tmp_path / "runs" / "watch").glob("*.jsonl")
    assert path.read_text() == stdout
    assert f"4 images, 0 updates. Lines are in {path.relative_to(tmp_path)}." in stderr
    write_images(folder, range(4, 6))
    stdout, stderr = watch("in")
    assert files(stdout) == ["4.png", "5.png"]
    assert "Resumed after 4 images." in stderr


@pytest.mark.small_batches
def test_interrupted_command_continues_without_losing_or_repeating_an_image(tmp_path):
    folder, path, other = write_images(tmp_path / "in", range(10)), tmp_path / "out.jsonl", tmp_path / "other.jsonl"
    options = (str(folder), "--set", "tent.window=4")
    code, _ = end_after(5, path, signal.SIGKILL, *options, "--out", str(path))
    assert code == -signal.SIGKILL
    write_images(folder, range(10, 14))
    code, stderr = end_after(11, path, signal.SIGTERM, *options, "--out", str(path))
    assert code == 143
    assert "Run the same command again to resume." in stderr
    write_images(folder, range(14, 18))
    watch(*options, "--out", str(path))
    watch(*options, "--out", str(other))
    assert files(path.read_text()) == [f"{number}.png" for number in range(18)]
    assert path.read_text() == other.read_text()


@pytest.mark.parametrize(
    ("network", "method", "expected"),
    [("embedded", None, "law"), ("fpn_wrn_10_1-shapes", None, "norm"), ("fpn_wrn_10_1-shapes", "law", "law")],
)
def test_the_default_method_depends_on_the_network(network, method, expected):
    assert load_adapter(method, network)[0].name == expected


def test_source_that_does_not_exist_is_refused():
    result = CliRunner().invoke(cli.app, ["watch", "nowhere/"])
    assert isinstance(result.exception, UsageError)
    assert "nowhere/ does not exist" in str(result.exception)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--method", "source,law", "names several methods"),
        ("--method", "lawn", "Unknown method 'lawn'"),
        ("--method", "rmt", "has no train split"),
        ("--set", "tau=1", "Write law.tau=1"),
    ],
)
def test_wrong_options_are_reported(tmp_path, option, value, message):
    result = CliRunner().invoke(cli.app, ["watch", str(tmp_path), "--once", option, value])
    assert isinstance(result.exception, UsageError)
    assert message in str(result.exception)
