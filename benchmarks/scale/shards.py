"""``scale shards``: memory and speed of streams from shards and folders, and runs on shards that are killed."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchmarks import options

if TYPE_CHECKING:
    import numpy as np

IMAGES_PER_SHARD = 1000
FOLDER_SIDE = 224
BATCH_SIZE = 64
SHARES = 0.1, 0.5, 1.0  # of the stream, after which memory is read
RUN = "driftlaw run --data {data} --network embedded --methods norm --workers {workers} --set stream.batch_size=50 "
RUN += "--checkpoint-seconds 0.1 --device cpu --out out"


def shards(
    images: Annotated[int, typer.Option(min=1000, help="Images in shards, 32×32.")] = 50_000,
    folder_images: Annotated[int, typer.Option(min=0, help="Images in a folder, 224×224.")] = 15_000,
    workers: Annotated[int, typer.Option(min=1, help="Processes that read images in advance.")] = 2,
    kills: Annotated[int, typer.Option(min=0, help="Runs on shards that are killed.")] = 10,
    kill_images: Annotated[int, typer.Option(min=1000, help="Images of these runs.")] = 5000,
    seed: Annotated[int, typer.Option(help="Seed of the moments.")] = 0,
    out: options.Out = None,
    as_json: options.AsJson = False,
) -> None:
    """Stream generated images from shards and from a folder, and kill runs on shards at random moments.

    Every stream is read by a new process, without and with workers. Memory is that of the process and the sum of its
    workers, in MiB at three points of the stream. Pages that workers share with the process count for each of them.

    Example: python -m benchmarks scale shards --out results/bench/scale-shards.json
    """
    import torch

    from benchmarks.reliability.kill import kill_command
    from driftlaw.hardware import environment

    def measure(on_progress: options.ProgressCallback) -> dict[str, Any]:
        rows, killed = [], {}
        with tempfile.TemporaryDirectory(prefix="driftlaw-shards-") as temporary:
            root = Path(temporary)
            datasets = {"shards": (write_shards(root / "shards", images), images)}
            if folder_images:
                datasets["folder"] = (write_folder(root / "folder", folder_images), folder_images)
            for kind, (data, count) in datasets.items():
                for number in (0, workers):
                    on_progress(f"{kind}, {number} workers")
                    rows.append({"kind": kind, "images": count, "workers": number})
                    rows[-1] |= in_new_process(data, number, str(root / "cache"))
            if len({row["checksum"] for row in rows if row["kind"] == "shards"}) > 1:
                raise RuntimeError("Workers changed the images of the stream.")
            if kills:
                data = write_shards(root / "part", kill_images)
                command = RUN.format(data=data, workers=workers)
                killed = kill_command("run on shards", kills, seed, on_progress, command)
                killed["arguments"] = command.replace(f"{root}/", "")
        setting = {"batch_size": BATCH_SIZE, "folder_side": FOLDER_SIDE, "kill_images": kill_images}
        return {"bench": "scale-shards", **setting, "rows": rows, "kill": killed, **environment(torch.device("cpu"))}

    options.report_result(measure, 4 + kills + 1, out, as_json)


def in_new_process(data: str, workers: int, cache: str) -> dict[str, Any]:
    """Return ``stream_images`` of a new process, which has no memory of earlier streams."""
    code = "import json, sys; from benchmarks.scale.shards import stream_images as run; "
    code += "print(json.dumps(run(sys.argv[1], int(sys.argv[2]), sys.argv[3])))"
    done = subprocess.run(
        [sys.executable, "-c", code, data, str(workers), cache],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    row: dict[str, Any] = json.loads(done.stdout)
    return row


def stream_images(data: str, workers: int, cache: str) -> dict[str, Any]:
    """Read a whole stream and return its speed and memory.

    Returns:
        ``open_seconds``: until the stream was made, which reads or finds the index of shards. ``memory_mib`` and
        ``workers_mib``: resident memory of this process and of its workers, by share of the stream.
        ``checksum``: sum of all pixel values, weighted by the number of the batch.
    """
    import torch

    import driftlaw

    torch.set_num_threads(1)
    started = time.perf_counter()
    stream = driftlaw.make_stream(data, batch_size=BATCH_SIZE, workers=workers, data_dir=cache)
    opened = time.perf_counter()
    points = {max(1, round(share * len(stream))): f"{share:.0%}" for share in SHARES}
    memory, children, checksum, count = {}, {}, 0, 0
    for batch in stream:
        checksum += (batch.index + 1) * int(batch.images.mul(255).round().sum(dtype=torch.float64))
        count += len(batch.images)
        if share := points.get(batch.index + 1):
            memory[share] = resident_mib("self")
            children[share] = sum(resident_mib(process.pid) for process in multiprocessing.active_children())
    seconds = time.perf_counter() - opened
    return {
        "batches": len(stream),
        "open_seconds": round(opened - started, 2),
        "images_per_second": round(count / seconds),
        "memory_mib": memory,
        "workers_mib": children,
        "checksum": checksum,
    }


def resident_mib(process: int | str | None) -> int:
    """Return the resident memory of a process in MiB."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS"))


def make_image(number: int, side: int, images: np.ndarray) -> bytes:
    """Return image ``number`` as JPEG: an embedded one, moved by some pixels and enlarged."""
    import numpy as np
    from PIL import Image

    moved = np.roll(images[number % len(images)], number // len(images), axis=(0, 1))
    Image.fromarray(moved).resize((side, side)).save(file := io.BytesIO(), "JPEG", quality=90)
    return file.getvalue()


def write_shards(folder: Path, count: int) -> str:
    """Write images of 32×32 pixels with labels to shards, and return the pattern of their names."""
    from driftlaw.datasets import load_dataset

    dataset = load_dataset("cifar10-embedded")
    pixels = dataset.images(range(len(dataset)))
    folder.mkdir()
    shards = -(-count // IMAGES_PER_SHARD)
    for shard in range(shards):
        with tarfile.open(folder / f"{shard:03d}.tar", "w") as archive:
            for number in range(shard * IMAGES_PER_SHARD, min((shard + 1) * IMAGES_PER_SHARD, count)):
                label = str(dataset.labels[number % len(dataset)]).encode()
                for suffix, data in (("jpg", make_image(number, 32, pixels)), ("cls", label)):
                    member = tarfile.TarInfo(f"{number:08d}.{suffix}")
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))
    return f"{folder}/{{000..{shards - 1:03d}}}.tar"


def write_folder(folder: Path, count: int) -> str:
    """Write images of 224×224 pixels to class folders, and return the folder."""
    from driftlaw.datasets import load_dataset

    dataset = load_dataset("cifar10-embedded")
    pixels = dataset.images(range(len(dataset)))
    for label in range(dataset.num_classes):
        (folder / str(label)).mkdir(parents=True)
    for number in range(count):
        path = folder / str(dataset.labels[number % len(dataset)]) / f"{number:08d}.jpg"
        path.write_bytes(make_image(number, FOLDER_SIDE, pixels))
    return f"{folder}/"
