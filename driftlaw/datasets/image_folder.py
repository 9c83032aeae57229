"""Datasets in folders of images, with one sub-folder per class or without labels; images are read on access."""

import os
import re
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from driftlaw.datasets.image_files import SUFFIXES, files_sha256, image_size, read_images
from driftlaw.datasets.protocol import Labels, Metadata, Pixels, checked_indices, size_metadata
from driftlaw.errors import DataError

MAX_UNCHANGED_SIZE = 224
SHORTER_SIDE = 256
CROP = 224
Transform = Callable[[Image.Image], Image.Image]


class FolderImages:
    """Images of a folder. Class names are its sub-folders in natural order (``2`` before ``10``).

    A folder without sub-folders has images in natural order, and no labels: ``num_classes`` is 0.

    If all images share one size of at most 224×224, they are used unchanged. Otherwise each is resized so that its
    shorter side is 256 (bilinear, antialiased) and center-cropped to 224×224. Grayscale images become RGB, and
    transparency is dropped.

    Args:
        folder: Folder with one sub-folder per class, or with images only.
        split: Split name in records.
        name: Name of the dataset; ``folder:PATH`` if omitted.
        description: First words of ``origin`` in records.
    """

    def __init__(
        self, folder: Path, *, split: str = "test", name: str | None = None, description: str = "pictures of a folder"
    ) -> None:
        self.name = name or f"folder:{folder}"
        if flat := _flat_files(folder):
            names, files, self.labels = list[str](), [flat], np.full(len(flat), -1)
        else:
            names, files = class_files(folder)
            self.labels = class_labels(files)
        self.class_names = names
        self.num_classes = len(self.class_names)
        self._folder, self._split, self._description = folder, split, description
        self._files = [path for class_paths in files for path in class_paths]
        self.image_shape, self._transform = output_shape(image_size(path) for path in self._files)

    def __len__(self) -> int:
        return len(self._files)

    def images(self, indices: npt.ArrayLike) -> Pixels:
        """Return the images at ``indices`` as uint8 (k, h, w, 3)."""
        chosen = [self._files[index] for index in checked_indices(indices, len(self))]
        return read_images(chosen, self.image_shape, self._transform)

    def metadata(self) -> Metadata:
        """Return JSON data for the header of a record."""
        return {
            **size_metadata(self),
            "split": self._split,
            "sha256": self._files_sha256,
            "origin": ", ".join([self._description, *images_per_class(self.labels), describe_size(self._transform)]),
        }

    @cached_property
    def _files_sha256(self) -> str:
        return files_sha256(self._folder, self._files)


def open_folder(path: str, split: str) -> FolderImages:
    """Return the images under ``path``. If it contains ``train`` and ``test`` (or ``val``), ``split`` selects one.

    Raises:
        DataError: The folder does not exist, or ``split`` is ``train`` and there is no such pair. Training on the test
            images must be requested explicitly.
    """
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise DataError(f"The folder {folder} does not exist. Expected images, or one sub-folder of images per class.")
    held_out = next((name for name in ("test", "val") if (folder / name).is_dir()), None)
    if held_out and (folder / "train").is_dir():
        return FolderImages(folder / (held_out if split == "test" else "train"), split=split)
    if split != "test":
        raise DataError(f"{folder} has no sub-folders 'train' and 'test' (or 'val'). Create both, or use split='test'.")
    return FolderImages(folder, split=split)


def class_files(folder: Path) -> tuple[list[str], list[list[Path]]]:
    """Return the names of the class folders in natural order, and the image files of each class.

    Raises:
        DataError: There are no class folders, or one of them is empty.
    """
    children = (child for child in folder.iterdir() if child.is_dir() and not child.name.startswith("."))
    classes = sorted(children, key=natural_key)
    files = [sorted(image_files(path), key=natural_key) for path in classes]
    if not classes:
        raise DataError(f"{folder} has no images and no sub-folders. Expected images, or one sub-folder per class.")
    empty = [path.name for path, class_paths in zip(classes, files, strict=True) if not class_paths]
    if empty:
        kinds = ", ".join(sorted(SUFFIXES))
        raise DataError(f"These class folders of {folder} contain no images ({kinds}): {', '.join(empty[:10])}.")
    return [path.name for path in classes], files


def class_labels(files: list[list[Path]]) -> Labels:
    """Return the label of every image, class after class."""
    return np.repeat(np.arange(len(files), dtype=np.int64), [len(class_paths) for class_paths in files])


def images_per_class(labels: Labels) -> list[str]:
    """Return ``["5 a class"]``, the wording of records, if all classes have equally many images, else an empty list."""
    if labels.min() < 0:
        return []
    counts = np.unique(np.bincount(labels))
    return [f"{counts[0]:,} a class"] if len(counts) == 1 else []


def output_shape(shapes: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], Transform | None]:
    """Return height and width that images of these sizes will have, and the transform that is needed for it.

    Images that share one size of at most 224×224 need none.
    """
    remaining = iter(shapes)
    first = next(remaining)
    if 0 < max(first) <= MAX_UNCHANGED_SIZE and all(shape == first for shape in remaining):
        return first, None
    return (CROP, CROP), resize_and_crop


def describe_size(transform: Transform | None) -> str:
    """Return how a transform of ``output_shape`` changes the size of images, in the wording of records."""
    return "as they are" if transform is None else f"shorter side {SHORTER_SIDE}, middle {CROP}×{CROP}"


def resize_and_crop(image: Image.Image) -> Image.Image:
    """Resize an image so that its shorter side is 256, and crop its center to 224×224."""
    scale = SHORTER_SIDE / min(image.size)
    width, height = (max(SHORTER_SIDE, round(side * scale)) for side in image.size)
    resized = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = (width - CROP) // 2, (height - CROP) // 2
    return resized.crop((left, top, left + CROP, top + CROP))


def _flat_files(folder: Path) -> list[Path]:
    """Return the image files of a folder without visible sub-folders; empty if it has sub-folders."""
    children = [child for child in folder.iterdir() if not child.name.startswith(".")]
    if any(child.is_dir() for child in children):
        return []
    return sorted((child for child in children if child.suffix.lower() in SUFFIXES), key=natural_key)


def image_files(folder: Path) -> list[Path]:
    """Return the image files of a folder and its sub-folders, without hidden ones, in no particular order."""
    paths = []
    for parent, subfolders, names in os.walk(folder):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        visible = [name for name in names if not name.startswith(".")]
        paths += [Path(parent, name) for name in visible if os.path.splitext(name)[1].lower() in SUFFIXES]
    return paths


def natural_key(path: Path) -> tuple[list[tuple[int, str]], str]:
    """Return the sort key of natural order: digits compare as numbers, so that ``2`` is before ``10``."""
    # The full text comes last, so that '01' and '1' have one order on every machine.
    parts = re.findall(r"\d+|\D+", path.as_posix())
    return [(int(part), "") if part.isascii() and part.isdigit() else (-1, part) for part in parts], path.as_posix()
