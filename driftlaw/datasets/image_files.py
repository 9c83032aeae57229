"""Picture files as arrays: one of them, or many at once by a small pool of threads."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image

from driftlaw.datasets.protocol import Pixels
from driftlaw.errors import DataError
from driftlaw.files import sha256_of

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".ppm", ".tif", ".tiff"})
THREADS = min(8, os.cpu_count() or 1)
"""Pillow decodes without holding Python's lock; more threads than this wait for the disk."""

HASHED_WHOLE = 60_000
"""Files up to which their bytes are read for a hash: ImageNet's validation images are, its training images are not."""

_UNREADABLE = (OSError, ValueError, SyntaxError, Image.DecompressionBombError)


def read_pictures(
    paths: Sequence[Path], shape: tuple[int, int], prepare: Callable[[Image.Image], Image.Image]
) -> Pixels:
    """Return pictures as uint8 (k, h, w, 3).

    A thread holds one decoded picture at a time and puts it into its row, so that memory is the answer's own and a
    few pictures more, whatever their size.

    Args:
        paths: the files.
        shape: height and width that ``prepare`` gives.
        prepare: brings an RGB picture to that size.

    Raises:
        DataError: a file cannot be read, or has another size; the first such file of ``paths`` is told.
    """
    out = np.empty((len(paths), *shape, 3), dtype=np.uint8)

    def fill(row: int) -> None:
        pixels = np.asarray(prepare(read_picture(paths[row])))
        if pixels.shape != out.shape[1:]:
            height, width, _ = pixels.shape
            raise DataError(f"{paths[row]} is {width}×{height} pixels; expected {shape[1]}×{shape[0]} as the others")
        out[row] = pixels

    if THREADS == 1 or len(paths) < 2:
        for row in range(len(paths)):
            fill(row)
        return out
    with ThreadPoolExecutor(min(THREADS, len(paths))) as pool:
        for _ in pool.map(fill, range(len(paths))):
            pass
    return out


def read_picture(path: Path) -> Image.Image:
    """Return a picture as RGB: grey ones are spread over the channels, transparency is dropped."""
    try:
        with Image.open(path) as picture:
            return picture.convert("RGB")
    except _UNREADABLE as error:
        raise DataError(f"{path} cannot be read as a picture: {error}") from error


def size_of(path: Path) -> tuple[int, int]:
    """Return height and width of a picture; its pixels are not decoded."""
    try:
        with Image.open(path) as picture:
            return picture.height, picture.width
    except _UNREADABLE as error:
        raise DataError(f"{path} cannot be read as a picture: {error}") from error


def files_sha256(folder: Path, paths: Sequence[Path]) -> str:
    """Return one sha256 of the names of files under ``folder`` and their bytes; of very many, of names and sizes."""
    digest = hashlib.sha256()
    own = sha256_of if len(paths) <= HASHED_WHOLE else _size_in_bytes
    with ThreadPoolExecutor(THREADS) as pool:
        for path, noted in zip(paths, pool.map(own, paths), strict=True):
            digest.update(f"{path.relative_to(folder).as_posix()}\0{noted}\n".encode())
    return digest.hexdigest()


def _size_in_bytes(path: Path) -> str:
    return f"{path.stat().st_size} bytes"
