"""A folder of pictures, one sub-folder a class, read when asked for."""

from __future__ import annotations

import os
import re
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from driftlaw.datasets.image_files import SUFFIXES, files_sha256, read_pictures, size_of
from driftlaw.datasets.protocol import Facts, Labels, Pixels, checked_indices
from driftlaw.errors import DataError

LARGEST_AS_IS = 224
SHORTER_SIDE = 256
CROP = 224


class FolderImages:
    """The pictures of a folder; class names are its sub-folders in natural order (``2`` before ``10``).

    Pictures that all share one size of at most 224×224 are taken as they are. Otherwise each is resized so that its
    shorter side is 256 (bilinear, antialiased) and its middle 224×224 is cut out. Grey pictures become RGB,
    transparency is dropped.

    Args:
        folder: the folder that holds one sub-folder a class.
        split: what the record calls it.
        name: what the set is called; ``folder:PATH`` by default.
        what: how the record's origin begins.
    """

    def __init__(
        self, folder: Path, *, split: str = "test", name: str | None = None, what: str = "pictures of a folder"
    ) -> None:
        self.name = name or f"folder:{folder}"
        self.class_names, files = class_files(folder)
        self.num_classes = len(self.class_names)
        self.labels = labels_of(files)
        self._folder, self._split, self._what = folder, split, what
        self._files = [path for own in files for path in own]
        self._as_is = _shared_small_size(self._files)

    def __len__(self) -> int:
        return len(self._files)

    @property
    def image_shape(self) -> tuple[int, int]:
        """Height and width of every image."""
        return self._as_is or (CROP, CROP)

    def images(self, indices: npt.ArrayLike) -> Pixels:
        """Return the pictures at ``indices`` as uint8 (k, h, w, 3)."""
        chosen = [self._files[index] for index in checked_indices(indices, len(self))]
        return read_pictures(chosen, self.image_shape, _as_it_is if self._as_is else _middle)

    def facts(self) -> Facts:
        """Return plain data for a record's header."""
        return {
            "name": self.name,
            "split": self._split,
            "count": len(self),
            "num_classes": self.num_classes,
            "image_shape": list(self.image_shape),
            "sha256": self._files_sha256,
            "origin": ", ".join([self._what, *counted_a_class(self.labels), self._prepared]),
        }

    @property
    def _prepared(self) -> str:
        return "as they are" if self._as_is else f"shorter side {SHORTER_SIDE}, middle {CROP}×{CROP}"

    @cached_property
    def _files_sha256(self) -> str:
        return files_sha256(self._folder, self._files)


def open_folder(path: str, split: str) -> FolderImages:
    """Return the pictures under ``path``; where it has ``train`` and ``test`` (or ``val``), ``split`` chooses one.

    A folder without such a pair is a test set; asking it for ``train`` raises, so that nobody trains on what they
    test on without saying so.
    """
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}; expected one that holds a sub-folder of pictures for each class")
    held_out = next((name for name in ("test", "val") if (folder / name).is_dir()), None)
    if held_out and (folder / "train").is_dir():
        return FolderImages(folder / (held_out if split == "test" else "train"), split=split)
    if split != "test":
        raise DataError(
            f"{folder} has no «train» beside «test» (or «val»); make both, or name the folder itself as test"
        )
    return FolderImages(folder, split=split)


def class_files(folder: Path) -> tuple[list[str], list[list[Path]]]:
    """Return the names of the class folders in natural order, and the pictures of each.

    Raises:
        DataError: there are no class folders, or one of them is empty.
    """
    classes = _class_folders(folder)
    files = [sorted(_pictures_in(place), key=_natural) for place in classes]
    _refuse_empty(folder, classes, files)
    return [place.name for place in classes], files


def labels_of(files: list[list[Path]]) -> Labels:
    """Return the label of every picture, class after class."""
    return np.repeat(np.arange(len(files), dtype=np.int64), [len(own) for own in files])


def counted_a_class(labels: Labels) -> list[str]:
    """Return how many pictures a class has, where all have equally many: ``["5 a class"]``, else nothing."""
    counts = np.unique(np.bincount(labels))
    return [f"{counts[0]:,} a class"] if len(counts) == 1 else []


def _class_folders(folder: Path) -> list[Path]:
    found = (child for child in folder.iterdir() if child.is_dir() and not child.name.startswith("."))
    return sorted(found, key=_natural)


def _pictures_in(folder: Path) -> list[Path]:
    found = []
    for place, below, names in os.walk(folder):
        below[:] = [name for name in below if not name.startswith(".")]
        found += [
            Path(place, name)
            for name in names
            if os.path.splitext(name)[1].lower() in SUFFIXES and not name.startswith(".")
        ]
    return found


def _natural(path: Path) -> tuple[list[tuple[int, str]], str]:
    # Digits compare as numbers; the plain text last, so that «01» and «1» have one order on every machine.
    parts = re.findall(r"\d+|\D+", path.as_posix())
    return [(int(part), "") if part.isascii() and part.isdigit() else (-1, part) for part in parts], path.as_posix()


def _refuse_empty(folder: Path, classes: list[Path], files: list[list[Path]]) -> None:
    if not classes:
        raise DataError(f"{folder} has no sub-folders; expected one for each class, with its pictures inside")
    empty = [place.name for place, own in zip(classes, files, strict=True) if not own]
    if empty:
        kinds = ", ".join(sorted(SUFFIXES))
        raise DataError(f"no pictures ({kinds}) in these class folders of {folder}: {', '.join(empty[:10])}")


def _shared_small_size(files: list[Path]) -> tuple[int, int] | None:
    shared: tuple[int, int] | None = None
    for path in files:
        size = size_of(path)
        if max(size) > LARGEST_AS_IS or (shared is not None and size != shared):
            return None
        shared = size
    return shared


def _as_it_is(picture: Image.Image) -> Image.Image:
    return picture


def _middle(picture: Image.Image) -> Image.Image:
    scale = SHORTER_SIDE / min(picture.size)
    width, height = (max(SHORTER_SIDE, round(side * scale)) for side in picture.size)
    resized = picture.resize((width, height), Image.Resampling.BILINEAR)
    left, top = (width - CROP) // 2, (height - CROP) // 2
    return resized.crop((left, top, left + CROP, top + CROP))
