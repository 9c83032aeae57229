"""``reliability watch``: kills ``driftlaw watch`` while a folder is being filled, and counts its lines."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks import options

COMMAND = "driftlaw watch in --out out.jsonl --checkpoint-seconds 2 --device cpu"
"""The command, in a folder of its own. It runs until it is ended."""
DAMAGED_EVERY = 250  # one image of so many is cut off
SLOW_EVERY = 50  # one image of so many is written in two parts
PART_SECONDS = 0.3  # between the two parts
AHEAD = 200  # images that may wait for a prediction
PAUSE = 0.01


def watch(
    images: Annotated[int, typer.Option(min=10, help="Number of images.")] = 5000,
    kills: Annotated[int, typer.Option(min=0, help="Number of kills, in the first half of the images.")] = 5,
    batch_size: Annotated[int, typer.Option(min=1, help="--batch-size of the command.")] = 8,
    seed: Annotated[int, typer.Option(help="Seed of the moments.")] = 0,
    out: options.Out = None,
    as_json: options.AsJson = False,
) -> None:
    """Fill a folder with images while `driftlaw watch` reads it, and kill it with kill -9 in the first half.

    One image in 250 is damaged, and one in 50 is written in two parts. Every image must have one line. Memory is
    measured in the second half, in which the command is not killed.

    Example: python -m benchmarks reliability watch --out results/bench/reliability-watch.json
    """
    import torch

    from driftlaw.hardware import environment

    def measure(on_progress: options.ProgressCallback) -> dict[str, Any]:
        row = watch_folder(f"{COMMAND} --batch-size {batch_size}", images, kills, seed, on_progress)
        return {"bench": "reliability-watch", "seed": seed, "rows": [row], **environment(torch.device("cpu"))}

    options.report_result(measure, kills + 2, out, as_json)


def watch_folder(
    command: str, images: int, kills: int, seed: int, on_progress: options.ProgressCallback
) -> dict[str, Any]:
    """Run the command over a folder that is being filled and return the row of the record.

    Returns:
        ``missing``, ``repeated``: images without a line and with several. ``wrongly_refused``: complete images with an
        error. ``damaged``, ``reported``: damaged images, and those with an error. ``memory_mib``: resident memory at
        several numbers of lines in the second half.
    """
    moments = sorted(random.Random(seed).sample(range(images // 20, images // 2), kills))
    with tempfile.TemporaryDirectory(prefix="driftlaw-watch-") as root:
        folder, path = Path(root), Path(root) / "out.jsonl"
        (folder / "in").mkdir()
        writer = threading.Thread(target=fill, args=(folder / "in", images, lambda: count_lines(path)), daemon=True)
        started = time.monotonic()
        writer.start()
        for number, moment in enumerate(moments):
            with running(command, folder) as process:
                wait_for(path, moment, process)
                os.killpg(process.pid, signal.SIGKILL)
            on_progress(f"kill {number + 1} after {moment} lines")
        with running(command, folder) as process:
            memory = {}
            for lines in range(images // 2, images + 1, max(1, images // 10)):
                wait_for(path, lines, process)
                memory[lines] = resident_mib(process.pid)
            wait_for(path, images, process)
            on_progress(f"{images} lines")
            time.sleep(1.0)  # for lines that should not come
            process.send_signal(signal.SIGTERM)
            process.wait()
        writer.join()
        seconds = time.monotonic() - started
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        on_progress(f"exit code {process.returncode}")
    counts, errors = Counter(line["file"] for line in lines), {line["file"] for line in lines if "error" in line}
    names = {f"{number}.png" for number in range(images)}
    damaged = {f"{number}.png" for number in range(images) if is_damaged(number)}
    return {
        "command": command,
        "images": images,
        "kills": kills,
        "missing": len(names - set(counts)),
        "repeated": sum(count > 1 for count in counts.values()),
        "damaged": len(damaged),
        "reported": len(errors & damaged),
        "wrongly_refused": len(errors - damaged),
        "updates": max(line.get("step", 0) for line in lines),
        "exit_code": process.returncode,
        "memory_mib": memory,
        "seconds": round(seconds, 1),
        "killed_after_lines": moments,
    }


def is_damaged(number: int) -> bool:
    """Return True for the images that are cut off."""
    return number % DAMAGED_EVERY == DAMAGED_EVERY - 1


def fill(folder: Path, images: int, predicted: Callable[[], int]) -> None:
    """Write images to a folder, some of them in two parts, never far ahead of the predictions."""
    from PIL import Image

    from driftlaw.datasets import load_dataset

    pixels = load_dataset("cifar10-embedded").images(range(min(images, 2000)))
    for number in range(images):
        while number > predicted() + AHEAD:
            time.sleep(PAUSE)
        file = io.BytesIO()
        Image.fromarray(pixels[number % len(pixels)]).save(file, "PNG")
        data, path = file.getvalue(), folder / f"{number}.png"
        half = len(data) // 2
        if is_damaged(number):
            path.write_bytes(data[:half])
        elif number % SLOW_EVERY == 0:
            with path.open("wb") as slow:
                slow.write(data[:half])
                slow.flush()
                time.sleep(PART_SECONDS)
                slow.write(data[half:])
        else:
            path.write_bytes(data)


@contextmanager
def running(command: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Context manager that starts the command in its own process group, and kills it at the end if it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", *command.split()],
        cwd=folder,
        env=os.environ | {"DRIFTLAW_DATA": str(folder / "data"), "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(path: Path, lines: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until a file has some lines; raise if the command ended before."""
    while count_lines(path) < lines:
        if process.poll() is not None:
            raise RuntimeError(f"The command ended with exit code {process.returncode}.")
        time.sleep(PAUSE)


def count_lines(path: Path) -> int:
    """Return the number of complete lines of a file; 0 if it does not exist."""
    return path.read_bytes().count(b"\n") if path.exists() else 0


def resident_mib(process: int) -> float:
    """Return the resident memory of a process in MiB (Linux)."""
    pages = int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)
