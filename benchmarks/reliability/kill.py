"""``reliability kill``: ends commands with ``kill -9``, runs them again, and compares what they wrote."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks import options

COMMANDS = {
    "run": "driftlaw run embedded --methods norm,law,rotta --set stream.batch_size=8 --limit 8 "
    "--checkpoint-seconds 0.1 --device cpu --out out",
    "train": "benchmarks train --dataset folder:images --model wrn_10_1 --epochs 12 --set batch_size=16 "
    "--checkpoint-seconds 0.1 --device cpu --out out/model.safetensors",
    "reproduce": "driftlaw reproduce table1 --datasets cifar10-c --methods norm,tent,law --seeds 1 --limit 12 "
    "--checkpoint-seconds 0.1 --compress --device cpu --out out",
    "tune": "benchmarks tune embedded --method tent --grid learning_rate=1e-3,2e-3,4e-3 --limit 16 --rounds 2 "
    "--set stream.batch_size=8 --checkpoint-seconds 0.1 --device cpu --out out",
}
"""Commands with small data, by name: a module of Python and its arguments. They write to ``out``."""

MAX_RESTARTS = 3
PAUSE = 0.01  # seconds between two looks at the output folder


def kill(
    commands: Annotated[str, typer.Option(help=f"Comma-separated: {', '.join(COMMANDS)}.")] = ",".join(COMMANDS),
    kills: Annotated[int, typer.Option(min=1, help="Kills per command.")] = 20,
    seed: Annotated[int, typer.Option(help="Seed of the moments.")] = 0,
    out: options.Out = None,
    as_json: options.AsJson = False,
) -> None:
    """Kill `run`, `train`, `reproduce` and `tune` at random moments, run them again, and compare the results.

    Each kill hits a new run in an empty folder. The moment is uniformly distributed over the part of the command in
    which it writes files. The same command is then started again until it ends. All files it wrote are compared with
    those of an undisturbed run, without timing fields.

    Example: python -m benchmarks reliability kill --out results/bench/reliability-kill.json
    """
    import torch

    from driftlaw.errors import unknown_name
    from driftlaw.hardware import environment

    names = options.split_names(commands)
    for name in names:
        if name not in COMMANDS:
            raise unknown_name("command", name, list(COMMANDS))

    def measure(on_progress: options.ProgressCallback) -> dict[str, Any]:
        rows = [kill_command(name, kills, seed, on_progress) for name in names]
        return {"bench": "reliability-kill", "seed": seed, "rows": rows, **environment(torch.device("cpu"))}

    options.report_result(measure, len(names) * (kills + 1), out, as_json)


def kill_command(
    name: str, kills: int, seed: int, on_progress: Callable[[str], None], arguments: str = ""
) -> dict[str, Any]:
    """Kill one command ``kills`` times and return the row of the record.

    Args:
        name: name of the command.
        kills: number of kills.
        seed: seed of the moments.
        on_progress: called after every kill.
        arguments: a module of Python and its arguments, if the command is not one of ``COMMANDS``.

    Returns:
        ``differing``: runs whose files differ from the undisturbed run's. ``temporary_files``: runs after which
        temporary files were left. ``shares``: the moment of each kill as a share of the part in which files are
        written. ``examples``: which files differed, at most five.
    """
    generator, moments, examples, leftovers = random.Random(f"{name} {seed}"), [], [], 0
    with tempfile.TemporaryDirectory(prefix="driftlaw-kill-") as root:
        undisturbed = Attempt(name, Path(root) / "undisturbed", arguments or COMMANDS[name])
        start, end = undisturbed.run_to_end()
        expected = undisturbed.contents()
        on_progress(f"{name}: {end - start:.1f} s")
        while len(moments) < kills:
            attempt, share = Attempt(name, Path(root) / "killed", undisturbed.arguments), generator.random()
            if attempt.kill_after(share * (end - start)):
                moments.append(round(share, 3))
                for _ in range(MAX_RESTARTS):
                    if attempt.ends_well():
                        break
                found = attempt.contents()
                temporary = {path for path in found if Path(path).name.startswith(".")}
                leftovers += bool(temporary)
                differing = sorted(
                    path
                    for path in (expected | found)
                    if expected.get(path) != found.get(path) and path not in temporary
                )
                if differing:
                    examples.append({"share": moments[-1], "files": differing, "stderr": attempt.stderr[-500:]})
                on_progress(f"{name}: kill {len(moments)} at {share:.0%}")
            shutil.rmtree(attempt.folder)
    return {
        "command": name,
        "kills": kills,
        "differing": len(examples),
        "temporary_files": leftovers,
        "lowest_share": min(moments),
        "highest_share": max(moments),
        "seconds": round(end - start, 2),
        "arguments": undisturbed.arguments,
        "shares": moments,
        "examples": examples[:5],
    }


@dataclass
class Attempt:
    """One command in a folder of its own."""

    name: str
    folder: Path
    arguments: str
    stderr: str = ""

    def start(self) -> subprocess.Popen[str]:
        """Start the command in its own process group."""
        self.folder.mkdir(exist_ok=True)
        if self.name == "train":
            write_images(self.folder / "images")
        environment = os.environ | {"DRIFTLAW_DATA": str(self.folder / "data"), "PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.Popen(
            [sys.executable, "-m", *self.arguments.split()],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run_to_end(self) -> tuple[float, float]:
        """Run the command undisturbed and return when its first file appeared and when it ended, in seconds."""
        process = self.start()
        first = self.wait_for_first_file(process)
        _, self.stderr = process.communicate()
        if process.returncode:
            raise RuntimeError(f"{self.name} ended with exit code {process.returncode}: {self.stderr}")
        return first, time.monotonic()

    def kill_after(self, seconds: float) -> bool:
        """Kill the command ``seconds`` after its first file appeared; return False if it had ended before."""
        process = self.start()
        self.wait_for_first_file(process)
        time.sleep(seconds)
        running = process.poll() is None
        if running:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return running and process.returncode == -signal.SIGKILL

    def ends_well(self) -> bool:
        """Run the command again and return True if it ended with exit code 0."""
        process = self.start()
        _, self.stderr = process.communicate()
        return process.returncode == 0

    def wait_for_first_file(self, process: subprocess.Popen[str]) -> float:
        """Wait until the output folder has a file, or the command has ended, and return the time."""
        while process.poll() is None and not any(path.is_file() for path in (self.folder / "out").rglob("*")):
            time.sleep(PAUSE)
        return time.monotonic()

    def contents(self) -> dict[str, Any]:
        """Return the contents of the files in the output folder, without timing fields."""
        return read_contents(self.folder / "out")


def write_images(folder: Path, per_class: int = 8) -> None:
    """Write some embedded images as a dataset with the splits ``train`` and ``test``; nothing if it exists."""
    from PIL import Image

    from driftlaw.datasets import load_dataset

    if folder.exists():
        return
    dataset = load_dataset("cifar10-embedded")
    for label in range(dataset.num_classes):
        indices = (dataset.labels == label).nonzero()[0][: 2 * per_class]
        for number, image in enumerate(dataset.images(indices)):
            target = folder / ("train" if number % 2 else "test") / str(label) / f"{number}.png"
            target.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(target)


def read_contents(folder: Path) -> dict[str, Any]:
    """Return the contents of the files of a folder, without timing fields."""
    return {str(path.relative_to(folder)): record_content(path) for path in folder.rglob("*") if path.is_file()}


def record_content(path: Path) -> Any:
    """Return the content of a record or another file without timing fields."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if path.name.startswith("."):  # a temporary file, complete or not
        return data
    if path.name.removesuffix(".gz").endswith(".jsonl"):
        return [_without_timing(json.loads(line)) for line in data.splitlines()]
    return _without_timing(json.loads(data)) if path.suffix == ".json" else data


def _without_timing(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_timing(inner) for key, inner in value.items() if key != "timing"}
    return [_without_timing(inner) for inner in value] if isinstance(value, list) else value
