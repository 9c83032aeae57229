"""The small real test set that ships with the package: how its images were chosen, how it is written and read."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from driftlaw.datasets.mosaics import read_sheet, untile
from driftlaw.datasets.protocol import ArrayImages, ImageDataset, Pixels
from driftlaw.errors import DataError
from driftlaw.files import atomic_path
from driftlaw.paths import ASSETS

NAME = "cifar10-embedded"
PER_CLASS = 200
_STEM = "cifar10_test_2000"
_COLUMNS = 40
RULE = (
    "A class gives its images i with the smallest sha256 of «driftlaw cifar10-embedded choice i», ranked by it; "
    "the order is by rank, then by the sha256 of «driftlaw cifar10-embedded order i», "
    "so that every ten images in a row hold each class once."
)
_ORIGIN = "2,000 of the 10,000 CIFAR-10 test images, 200 a class"


def read_embedded(folder: Path = ASSETS) -> ArrayImages:
    """Return the embedded test images.

    Raises:
        DataError: a file is missing, damaged or not what its notes say.
    """
    notes = _read_notes(folder)
    images = _read_mosaic(folder / f"{_STEM}.webp", len(notes["labels"]))
    facts = {"split": "test", "origin": _ORIGIN}
    source = ArrayImages(NAME, images, notes["labels"], notes["class_names"], facts)
    if source.content_sha256 != notes["sha256"]:
        raise DataError(
            f"the images in {folder / _STEM}.webp have sha256 {source.content_sha256}; expected {notes['sha256']}. "
            "The installation is damaged: install driftlaw again"
        )
    return source


def write_embedded(source: ImageDataset, folder: Path, *, per_class: int = PER_CLASS) -> list[Path]:
    """Choose images of ``source`` (the CIFAR-10 test set) and write them losslessly with their notes.

    Args:
        source: the images to choose from.
        folder: where the two files go.
        per_class: how many images of each class.

    Returns:
        The mosaic and the notes beside it.
    """
    indices = choose(source.labels, per_class)
    images, labels = source.images(indices), source.labels[indices]
    chosen = ArrayImages(NAME, images, labels, source.class_names)
    notes = {
        "what": "labels and original test indices of the tiles, read left to right, top to bottom",
        "rule": RULE,
        "source": source.facts(),
        "sha256": chosen.content_sha256,
        "class_names": source.class_names,
        "labels": labels.tolist(),
        "indices": indices.tolist(),
    }
    with atomic_path(folder / f"{_STEM}.webp") as path:
        Image.fromarray(_mosaic(images)).save(path, "WEBP", lossless=True, exact=True, quality=75, method=4)
    with atomic_path(folder / f"{_STEM}.json") as path:
        path.write_text(json.dumps(notes, separators=(",", ":")) + "\n")
    return [folder / f"{_STEM}.webp", folder / f"{_STEM}.json"]


def choose(labels: npt.NDArray[np.int64], per_class: int) -> npt.NDArray[np.int64]:
    """Return which images are taken, in which order, by ``RULE``: the same on every machine and numpy."""
    ranked = []
    for label in np.unique(labels):
        own = sorted(np.flatnonzero(labels == label).tolist(), key=lambda index: _key("choice", index))
        if len(own) < per_class:
            raise DataError(f"class {label} has {len(own)} images; {per_class} are needed")
        ranked += [(rank, _key("order", index), index) for rank, index in enumerate(own[:per_class])]
    return np.asarray([index for _, _, index in sorted(ranked)], dtype=np.int64)


def _key(purpose: str, index: int) -> str:
    return hashlib.sha256(f"driftlaw cifar10-embedded {purpose} {index}".encode()).hexdigest()


def _mosaic(images: Pixels) -> Pixels:
    count, height, width, _ = images.shape
    rows = -(-count // _COLUMNS)
    sheet = np.zeros((rows * _COLUMNS, height, width, 3), dtype=np.uint8)
    sheet[:count] = images
    tiles = sheet.reshape(rows, _COLUMNS, height, width, 3).transpose(0, 2, 1, 3, 4)
    return tiles.reshape(rows * height, _COLUMNS * width, 3)


def _read_mosaic(path: Path, count: int) -> Pixels:
    sheet = read_sheet(path, remedy="install driftlaw again")
    return np.ascontiguousarray(untile(sheet, _COLUMNS)[:count])


def _read_notes(folder: Path) -> dict[str, Any]:
    path = folder / f"{_STEM}.json"
    try:
        notes: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}); install driftlaw again") from error
    return notes
