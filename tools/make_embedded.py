"""Makes the embedded test set (``driftlaw/assets/cifar10_test_2000.*``) from the CIFAR-10 test images.

Usage: ``python -m tools.make_embedded --out FOLDER``
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from driftlaw.datasets import ArrayImages, ImageDataset, load_dataset
from driftlaw.datasets.embedded import COLUMNS, NAME, STEM
from driftlaw.datasets.protocol import Pixels
from driftlaw.errors import DataError, DriftlawError
from driftlaw.files import atomic_path

PER_CLASS = 200
# The rule and the strings in `choose` are part of the published file: they keep their wording.
RULE = (
    "A class gives its images i with the smallest sha256 of \u00abdriftlaw cifar10-embedded choice i\u00bb, "
    "ranked by it; the order is by rank, then by the sha256 of \u00abdriftlaw cifar10-embedded order i\u00bb, "
    "so that every ten images in a row hold each class once."
)


def write_embedded(dataset: ImageDataset, folder: Path, *, per_class: int = PER_CLASS) -> list[Path]:
    """Choose images of the CIFAR-10 test set and write them as a lossless mosaic with a JSON file of labels.

    Args:
        dataset: The images to choose from.
        folder: Output folder.
        per_class: Number of images per class.

    Returns:
        Paths of the mosaic and of the JSON file.
    """
    indices = choose(dataset.labels, per_class)
    images, labels = dataset.images(indices), dataset.labels[indices]
    chosen = ArrayImages(NAME, images, labels, dataset.class_names)
    notes = {
        "what": "labels and original test indices of the tiles, read left to right, top to bottom",
        "rule": RULE,
        "source": dataset.metadata(),
        "sha256": chosen.content_sha256,
        "class_names": dataset.class_names,
        "labels": labels.tolist(),
        "indices": indices.tolist(),
    }
    with atomic_path(folder / f"{STEM}.webp") as path:
        Image.fromarray(_mosaic(images)).save(path, "WEBP", lossless=True, exact=True, quality=75, method=4)
    with atomic_path(folder / f"{STEM}.json") as path:
        path.write_text(json.dumps(notes, separators=(",", ":")) + "\n")
    return [folder / f"{STEM}.webp", folder / f"{STEM}.json"]


def choose(labels: npt.NDArray[np.int64], per_class: int) -> npt.NDArray[np.int64]:
    """Return the indices of the chosen images in order, by ``RULE``; independent of machine and numpy version."""
    ranked = []
    for label in np.unique(labels):
        members = sorted(np.flatnonzero(labels == label).tolist(), key=lambda index: _key("choice", index))
        if len(members) < per_class:
            raise DataError(f"Class {label} has {len(members)} images; expected at least {per_class}.")
        ranked += [(rank, _key("order", index), index) for rank, index in enumerate(members[:per_class])]
    return np.asarray([index for _, _, index in sorted(ranked)], dtype=np.int64)


def _key(purpose: str, index: int) -> str:
    return hashlib.sha256(f"driftlaw cifar10-embedded {purpose} {index}".encode()).hexdigest()


def _mosaic(images: Pixels) -> Pixels:
    count, height, width, _ = images.shape
    rows = -(-count // COLUMNS)
    sheet = np.zeros((rows * COLUMNS, height, width, 3), dtype=np.uint8)
    sheet[:count] = images
    tiles = sheet.reshape(rows, COLUMNS, height, width, 3).transpose(0, 2, 1, 3, 4)
    return tiles.reshape(rows * height, COLUMNS * width, 3)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the two files and print their paths."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="output folder")
    parser.add_argument("--data-dir", type=Path, help="data directory (default: $DRIFTLAW_DATA, then the user cache)")
    options = parser.parse_args(arguments)
    for path in write_embedded(load_dataset("cifar10", data_dir=options.data_dir), options.out):
        print(path)


if __name__ == "__main__":
    try:
        main()
    except DriftlawError as error:
        sys.exit(f"error: {error}")
