"""A folder of pictures, one sub-folder a class, read when asked for."""

from __future__ import annotations

import hashlib
import re
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from driftlaw.datasets.sources import Facts, Pixels, checked_indices
from driftlaw.errors import DataError
from driftlaw.files import sha256_of

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".ppm", ".tif", ".tiff"})
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
    """

    def __init__(self, folder: Path, *, split: str = "test") -> None:
        classes = _class_folders(folder)
        files = [sorted(_pictures_in(place), key=_natural) for place in classes]
        _refuse_empty(folder, classes, files)
        self.name = f"folder:{folder}"
        self.class_names = [place.name for place in classes]
        self.num_classes = len(classes)
        self.labels = np.repeat(np.arange(len(classes), dtype=np.int64), [len(own) for own in files])
        self._folder, self._split = folder, split
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
        chosen = checked_indices(indices, len(self))
        out = np.empty((len(chosen), *self.image_shape, 3), dtype=np.uint8)
        for row, index in enumerate(chosen):
            out[row] = self._read(self._files[index])
        return out

    def facts(self) -> Facts:
        """Return plain data for a record's header."""
        return {
            "name": self.name,
            "split": self._split,
            "count": len(self),
            "num_classes": self.num_classes,
            "image_shape": list(self.image_shape),
            "sha256": self._files_sha256,
            "origin": "pictures of a folder, "
            + ("as they are" if self._as_is else f"shorter side {SHORTER_SIDE}, middle {CROP}×{CROP}"),
        }

    @cached_property
    def _files_sha256(self) -> str:
        digest = hashlib.sha256()
        for path in self._files:
            digest.update(f"{path.relative_to(self._folder).as_posix()}\0{sha256_of(path)}\n".encode())
        return digest.hexdigest()

    def _read(self, path: Path) -> Pixels:
        try:
            with Image.open(path) as picture:
                whole = picture.convert("RGB")
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise DataError(f"{path} cannot be read as a picture: {error}") from error
        return np.asarray(whole if self._as_is else _middle(whole))


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


def _class_folders(folder: Path) -> list[Path]:
    found = (child for child in folder.iterdir() if child.is_dir() and not child.name.startswith("."))
    return sorted(found, key=_natural)


def _pictures_in(folder: Path) -> list[Path]:
    return [
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()
    ]


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
        size = _size_of(path)
        if max(size) > LARGEST_AS_IS or (shared is not None and size != shared):
            return None
        shared = size
    return shared


def _size_of(path: Path) -> tuple[int, int]:
    try:
        with Image.open(path) as picture:
            return picture.height, picture.width
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(f"{path} cannot be read as a picture: {error}") from error


def _middle(picture: Image.Image) -> Image.Image:
    scale = SHORTER_SIDE / min(picture.size)
    width, height = (max(SHORTER_SIDE, round(side * scale)) for side in picture.size)
    resized = picture.resize((width, height), Image.Resampling.BILINEAR)
    left, top = (width - CROP) // 2, (height - CROP) // 2
    return resized.crop((left, top, left + CROP, top + CROP))
