"""Small WebDataset shards."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image

SIDE = 8


def pixels(number: int, side: int = SIDE) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, (side, side, 3), np.uint8)


def png(number: int, side: int = SIDE) -> bytes:
    Image.fromarray(pixels(number, side)).save(file := io.BytesIO(), "PNG")
    return file.getvalue()


def tar(files: Mapping[str, bytes]) -> bytes:
    with tarfile.open(fileobj=(out := io.BytesIO()), mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def samples(first: int, count: int, *, labels: bool = True) -> dict[str, bytes]:
    """Return files of samples: PNG images of noise, with label ``number % 3``."""
    files = {}
    for number in range(first, first + count):
        files[f"{number:04d}.png"] = png(number)
        if labels:
            files[f"{number:04d}.cls"] = str(number % 3).encode()
    return files


def write_shards(folder: Path, shards: int = 3, count: int = 5) -> str:
    """Write shards with ``count`` samples each, and return their pattern."""
    folder.mkdir(exist_ok=True)
    for shard in range(shards):
        (folder / f"{shard:02d}.tar").write_bytes(tar(samples(shard * count, count)))
    return f"{folder}/{{00..{shards - 1:02d}}}.tar"
