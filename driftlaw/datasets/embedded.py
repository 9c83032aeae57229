"""The embedded test set: 2,000 CIFAR-10 test images that ship with the package (``tools/make_embedded.py``)."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, features

from driftlaw.datasets.protocol import ArrayImages, Pixels
from driftlaw.errors import DataError
from driftlaw.paths import ASSETS

NAME = "cifar10-embedded"
STEM = "cifar10_test_2000"
COLUMNS = 40
_ORIGIN = "2,000 of the 10,000 CIFAR-10 test images, 200 a class"


def read_embedded(folder: Path = ASSETS) -> ArrayImages:
    """Return the embedded test images.

    Raises:
        DataError: A file is missing, damaged, or differs from its checksum.
    """
    path = folder / f"{STEM}.json"
    try:
        notes: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}). Reinstall driftlaw.") from error
    images = np.ascontiguousarray(untile(read_sheet(folder / f"{STEM}.webp"), COLUMNS)[: len(notes["labels"])])
    dataset = ArrayImages(NAME, images, notes["labels"], notes["class_names"], {"split": "test", "origin": _ORIGIN})
    if dataset.content_sha256 != notes["sha256"]:
        raise DataError(
            f"The images in {folder / STEM}.webp have sha256 {dataset.content_sha256}; expected {notes['sha256']}. "
            "Reinstall driftlaw."
        )
    return dataset


def untile(sheet: Pixels, columns: int) -> Pixels:
    """Return the square tiles of a mosaic as (n, side, side, 3), left to right, top to bottom."""
    side = sheet.shape[1] // columns
    tiles = sheet.reshape(-1, side, columns, side, 3).transpose(0, 2, 1, 3, 4)
    return tiles.reshape(-1, side, side, 3)


def read_sheet(path: Path) -> Pixels:
    """Return a WebP image as uint8 (h, w, 3)."""
    if not features.check("webp"):
        raise DataError(f"This build of Pillow cannot read WebP files such as {path.name}. Install Pillow from PyPI.")
    try:
        with Image.open(path) as image:
            return np.asarray(image.convert("RGB"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}). Replace it, or reinstall driftlaw.") from error
