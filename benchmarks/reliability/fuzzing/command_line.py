"""Target: the command line."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import typer
from click.testing import CliRunner
from hypothesis import strategies as st

from benchmarks.reliability.fuzzing.checker import Checker, Draw
from benchmarks.reliability.fuzzing.files import picture, weights_file
from benchmarks.reliability.fuzzing.records import damage_lines, example_files
from driftlaw.cli import app

APP = typer.main.get_command(app)  # once: typer builds all commands for every call of ``app``
OPTIONS: dict[str, tuple[str, ...]] = {
    "run": (
        *("--methods", "--seeds", "--set", "--network", "--checkpoint", "--normalize", "--data", "--limit", "--out"),
        *("--device", "--data-dir", "--overwrite", "--checkpoint-seconds", "--metrics", "--json"),
    ),
    "reproduce": (
        *("--datasets", "--methods", "--seeds", "--limit", "--device", "--out", "--jobs", "--network", "--metrics"),
        *("--compress", "--data-dir", "--json"),
    ),
    "report": ("--format", "--out", "--methods", "--columns", "--compare", "--no-images", "--data-dir"),
    "corrupt": ("--name", "--severity", "--seed", "--every", "--sheet"),
    "export": ("--state", "--network", "--calibrate", "--images", "--image-size", "--device"),
    "check": ("--set", "--only", "--json"),
    "list": ("--json",),
    "data list": ("--data-dir", "--json"),
    "data get": ("--data-dir",),
    "data make": (),
    "data verify": ("--data-dir",),
    "nothing": ("--help", "--version", "-q", "-v"),
}
"""Options by command. ``run`` and ``reproduce`` are called with --dry-run, because a run takes seconds."""
WORDS = (
    *("", "-1", "0", "1", "3", "1-3", "3-1", "1,,2", "1e9", "nan", "9" * 40, "law", "law,tent", "norm", "laww", "a=b"),
    *("law.tau=0.6", "law.tau=x", "law.tau=inf", "stream.limit=2", "stream=3", "stream.dataset=folder:x", "=", ".=1"),
    *("step.precision=bf16", "model.weights=3", "cpu", "cuda", "cuda:99", "meta", "embedded", "cifar10-c", "table1"),
    *("embedded+fast", "++", "fig3", "table99", "methods", "presets", "models", "cifar10", "cifar10-c", "half", "md"),
    *("csv", "json", "html", "terminal", "text.pdf", "calibration", "drift,forgetting", "error,ms", "paper", "fog"),
    *(
        "spatter",
        "--",
        "--json",
        "-h",
        "--help",
        "\x1b[31m",
        "[red]",
        "=1+1",
        "é",
        "a/b",
        "/dev/null",
    ),
    *("IN", "IN/a.png", "OUT", "OUT/x.png", "OUT/x.md", "RECORD", "RECORDS", "WEIGHTS", "PRESET", "METHOD", "NETWORK"),
)
METHOD = """
from driftlaw.base import Adapter, StepOutput

class Mine(Adapter, name="fuzz_mine"):
    def update(self, images, plan):
        return StepOutput(self.model(images))
"""


def command_line(draw: Draw, checker: Checker, folder: Path) -> None:
    """One command with unusual arguments and options, without a network."""
    files = {
        "IN/a.png": picture("PNG"),
        "RECORDS/record.jsonl": damage_lines(draw, example_files()["finished.jsonl"]),
        "WEIGHTS.safetensors": weights_file(),
        "PRESET.toml": b"[stream]\nlimit = 2\n",
        "METHOD.py": METHOD.encode(),
        "NETWORK.py": b"from benchmarks.reliability.fuzzing.networks import tiny as make\n",
    }
    for name, data in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
    (folder / "OUT").mkdir()
    suffixes = {
        "RECORD": "RECORDS/record.jsonl",
        "WEIGHTS": "WEIGHTS.safetensors",
        "PRESET": "PRESET.toml",
        "METHOD": "METHOD.py",
        "NETWORK": "NETWORK.py:make",
    }
    command = draw(st.sampled_from(list(OPTIONS)))
    arguments = draw(st.lists(st.sampled_from(WORDS), max_size=2))
    for option in draw(st.lists(st.sampled_from(OPTIONS[command] or ("-h",)), max_size=3)):
        arguments += [option, *draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=1))]
    words = [*command.split(), *(suffixes.get(word, word) for word in arguments)]
    if command in ("run", "reproduce"):
        words.append("--dry-run")
    elif command == "check" and "--only" not in words:
        words += ["--only", "reset"]
    elif command == "nothing":
        words = words[1:]

    def invoke(words: list[str]) -> Any:
        result = CliRunner().invoke(APP, words, catch_exceptions=False)
        if result.exit_code == 0 and "--json" in words and result.stdout.startswith("{"):
            json.loads(result.stdout)
        return result

    with _in_folder(folder):
        checker.call(invoke, words, allowed=(OSError,))


@contextmanager
def _in_folder(folder: Path) -> Iterator[None]:
    """Context manager that works in a folder with its own data directory and without a network."""
    before = os.getcwd()
    os.chdir(folder)
    refuse = mock.Mock(side_effect=OSError("no network"))
    with (
        mock.patch.dict(os.environ, {"DRIFTLAW_DATA": str(folder / "data")}),
        mock.patch.object(socket.socket, "connect", refuse),
        mock.patch.object(socket, "getaddrinfo", refuse),
    ):
        try:
            yield
        finally:
            os.chdir(before)
