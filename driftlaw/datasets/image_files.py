"""Encoded images as arrays, decoded by a small thread pool."""

import contextlib
import hashlib
import io
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, UnidentifiedImageError

from driftlaw.datasets.protocol import Pixels
from driftlaw.errors import DataError
from driftlaw.files import check_regular_file, sha256_of

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".ppm", ".tif", ".tiff"})
THREADS = min(8, os.cpu_count() or 1)
"""Pillow decodes without holding the GIL; more threads than this wait for the disk."""

MAX_FULLY_HASHED = 60_000
"""Up to this many files are hashed with their content: ImageNet's validation images, but not its training images."""


class EncodedImage(NamedTuple):
    """Content of an image file, and a function that names the image in error messages."""

    data: bytes
    describe: Callable[[], str]

    def __str__(self) -> str:
        return self.describe()


def read_images(
    files: Sequence[Path | EncodedImage],
    shape: tuple[int, int],
    transform: Callable[[Image.Image], Image.Image] | None = None,
) -> Pixels:
    """Return images as uint8 (k, h, w, 3).

    Each thread holds one decoded image at a time, so memory use is that of the result and a few images more.

    Args:
        files: Image files, or their contents.
        shape: Height and width after ``transform``.
        transform: Brings an RGB image to that size; by default images are used unchanged.

    Raises:
        DataError: A file cannot be read or has another size. The message names the first such file.
    """
    out = np.empty((len(files), *shape, 3), dtype=np.uint8)

    def fill(row: int) -> None:
        with open_image(files[row]) as image:
            rgb = image.convert("RGB")  # grayscale is repeated over the channels, transparency is dropped
        pixels = np.asarray(transform(rgb) if transform else rgb)
        if pixels.shape != out.shape[1:]:
            height, width, _ = pixels.shape
            raise DataError(f"{files[row]} has {width}×{height} pixels; expected {shape[1]}×{shape[0]}.")
        out[row] = pixels

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(fill, range(len(files))))
    return out


@contextlib.contextmanager
def open_image(file: Path | EncodedImage) -> Iterator[Image.Image]:
    """Context manager that yields an opened image; raise ``DataError`` if it cannot be read."""
    if isinstance(file, Path):
        check_regular_file(file)
    try:
        with Image.open(file if isinstance(file, Path) else io.BytesIO(file.data)) as image:
            yield image
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        reason = "unknown format" if isinstance(error, UnidentifiedImageError) else error
        raise DataError(f"{file} cannot be read as an image: {reason}.") from error


def image_size(path: Path) -> tuple[int, int]:
    """Return height and width of an image file without decoding its pixels."""
    with open_image(path) as image:
        return image.height, image.width


def files_sha256(folder: Path, paths: Sequence[Path]) -> str:
    """Return one sha256 of the names of files under ``folder`` and their content.

    With more than ``MAX_FULLY_HASHED`` files, sizes are used instead of content.
    """
    digest = hashlib.sha256()
    fingerprint = sha256_of if len(paths) <= MAX_FULLY_HASHED else (lambda path: f"{path.stat().st_size} bytes")
    with ThreadPoolExecutor(THREADS) as pool:
        for path, value in zip(paths, pool.map(fingerprint, paths), strict=True):
            digest.update(f"{path.relative_to(folder).as_posix()}\0{value}\n".encode())
    return digest.hexdigest()
