"""Images as tiles of large lossless pictures, with their labels in one JSON file: found and read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, features

from driftlaw.datasets.protocol import Labels, Pixels
from driftlaw.errors import DataError


@dataclass(frozen=True)
class MosaicLayout:
    """How a set lies on disk as mosaics.

    Attributes:
        folder: the folder's name.
        files: the mosaics of each split, in order; tiles are read left to right, top to bottom.
        labels_file: the JSON file that holds a list of labels for each split.
        names_key: where that file keeps the names of the classes.
        origin: what a record says of images read from it.
        sha256: of the pixels and labels of each split.
        side: height and width of a tile.
        columns: tiles a row.
    """

    folder: str
    files: Mapping[str, tuple[str, ...]]
    labels_file: str
    names_key: str
    origin: str
    sha256: Mapping[str, str]
    side: int = 32
    columns: int = 100


def find_mosaics(layout: MosaicLayout, folder: Path, split: str) -> Path | None:
    """Return the folder that holds every mosaic of ``split``: the layout's own under ``folder``, or ``folder``."""
    wanted = (*layout.files[split], layout.labels_file)
    places = (folder / layout.folder, folder)
    return next((place for place in places if all(os.path.isfile(place / name) for name in wanted)), None)


def read_mosaics(layout: MosaicLayout, folder: Path, split: str) -> tuple[Pixels, Labels, list[str]]:
    """Return images uint8 (n, h, w, 3), labels int64 (n,) and the names of the classes of a split.

    Raises:
        DataError: a file is missing, damaged, or tiles and labels do not go together.
    """
    notes = _read_notes(folder / layout.labels_file, (split, layout.names_key))
    names = [str(name) for name in notes[layout.names_key]]
    labels = np.asarray(notes[split])
    tiles = np.concatenate([_read_tiles(layout, folder / name) for name in layout.files[split]])
    whole = labels.ndim == 1 and labels.size > 0 and labels.dtype.kind == "i"
    # the last row of a mosaic may be filled up with black tiles
    if not whole or not len(tiles) - layout.columns < len(labels) <= len(tiles):
        raise DataError(
            f"{folder / layout.labels_file} holds {labels.size} labels under «{split}» for {len(tiles)} tiles; "
            "expected one whole number a tile. Put the files of one set there"
        )
    return np.ascontiguousarray(tiles[: len(labels)]), labels.astype(np.int64), names


def untile(sheet: Pixels, columns: int) -> Pixels:
    """Return the square tiles of a mosaic as (n, side, side, 3), read left to right, top to bottom."""
    side = sheet.shape[1] // columns
    tiles = sheet.reshape(-1, side, columns, side, 3).transpose(0, 2, 1, 3, 4)
    return tiles.reshape(-1, side, side, 3)


def read_sheet(path: Path, *, remedy: str) -> Pixels:
    """Return a WebP picture as (h, w, 3); where it cannot be read, the message ends with the remedy."""
    if not features.check("webp"):
        raise DataError(f"this Pillow cannot read WebP, which {path.name} is; install Pillow's own wheel")
    try:
        with Image.open(path) as picture:
            return np.asarray(picture.convert("RGB"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}); {remedy}") from error


def _read_tiles(layout: MosaicLayout, path: Path) -> Pixels:
    sheet = read_sheet(path, remedy="put a whole copy of it there")
    height, width, _ = sheet.shape
    if width != layout.columns * layout.side or height % layout.side:
        raise DataError(
            f"{path} is {width}×{height} pixels; expected {layout.columns} tiles of {layout.side}×{layout.side} a row"
        )
    return untile(sheet, layout.columns)


def _read_notes(path: Path, keys: tuple[str, ...]) -> dict[str, Any]:
    try:
        notes = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}); put a whole copy of it there") from error
    missing = [key for key in keys if not isinstance(notes, dict) or not isinstance(notes.get(key), list)]
    if missing:
        raise DataError(f"{path} has no list under {', '.join(f'«{key}»' for key in missing)}")
    return dict(notes)
