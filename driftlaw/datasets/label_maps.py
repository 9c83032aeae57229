"""Images with label maps (a class per pixel) in files, in temporal order and read on access."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from driftlaw.datasets.image_files import THREADS, files_sha256, image_size, open_image, read_images
from driftlaw.datasets.protocol import Metadata, Pixels, checked_indices, size_metadata
from driftlaw.errors import DataError, UsageError

NO_CLASS = 255
"""Label of pixels without a class in label maps of this package; files may use other numbers or colors."""

Decoder = Callable[[Image.Image], Pixels]
"""Returns the label map of an opened image, uint8 (h, w); raises ``ValueError`` for unknown numbers or colors."""


class LabelMapImages:
    """Images with label maps, an ``ImageDataset`` for segmentation. ``labels`` are -1: there is none per image.

    Args:
        name: Name of the dataset.
        folder: Folder that contains all files.
        frames: Sequence, image and label map of every frame, in temporal order.
        class_names: One name per class, in label order.
        decode: Reads a label map.
        split: Split name in records.
        origin: Description in records.
        size: Height and width to resize to: bilinear for images, nearest-neighbour for label maps. By default images
            are used unchanged and must have one size.

    Attributes:
        sequences: Indices of the frames of each sequence, by its name.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        frames: Sequence[tuple[str, Path, Path]],
        class_names: Sequence[str],
        decode: Decoder,
        *,
        split: str,
        origin: str,
        size: tuple[int, int] | None = None,
    ) -> None:
        self.name, self.class_names, self.num_classes = name, list(class_names), len(class_names)
        if not frames:
            raise DataError(f"{folder} contains no images with label maps for the split '{split}'.")
        if self.num_classes < 2:
            raise DataError(f"{name} has {self.num_classes} class. Expected two or more; one may be the background.")
        names = np.array([sequence for sequence, _, _ in frames])
        self.image_files, self.label_files = [image for _, image, _ in frames], [label for _, _, label in frames]
        self.labels = np.full(len(frames), -1)
        self.sequences = {name: np.flatnonzero(names == name) for name in dict.fromkeys(names.tolist())}
        self.image_shape = size or image_size(self.image_files[0])
        self._folder, self._decode, self._split, self._origin, self._size = folder, decode, split, origin, size

    def __len__(self) -> int:
        return len(self.image_files)

    def images(self, indices: npt.ArrayLike) -> Pixels:
        """Return the images at ``indices`` as uint8 (k, h, w, 3)."""
        chosen = [self.image_files[index] for index in checked_indices(indices, len(self))]
        transform = (
            None if self._size is None else lambda image: image.resize(self._width_height, Image.Resampling.BILINEAR)
        )
        return read_images(chosen, self.image_shape, transform)

    def label_maps(self, indices: npt.ArrayLike) -> Pixels:
        """Return the label maps at ``indices`` as uint8 (k, h, w); pixels without a class are 255.

        Raises:
            DataError: A label map cannot be read, has another size than its image, or has an unknown number or color.
        """
        chosen = checked_indices(indices, len(self)).tolist()
        with ThreadPoolExecutor(THREADS) as pool:
            maps = list(pool.map(self._label_map, chosen))
        return np.stack(maps) if maps else np.empty((0, *self.image_shape), np.uint8)

    def _label_map(self, index: int) -> Pixels:
        path, expected = self.label_files[index], image_size(self.image_files[index])
        with open_image(path) as image:
            try:
                labels = self._decode(image)
            except ValueError as error:
                raise DataError(f"{path}: {error}") from error
        if labels.shape != expected:
            found, image_text = ("×".join(map(str, reversed(shape))) for shape in (labels.shape, expected))
            raise DataError(
                f"The label map {path} has {found} pixels, but its image has {image_text}. Expected one label per "
                "pixel. Resize it with nearest-neighbour interpolation."
            )
        if self._size is not None:
            labels = np.asarray(Image.fromarray(labels).resize(self._width_height, Image.Resampling.NEAREST))
        return labels

    @property
    def _width_height(self) -> tuple[int, int]:
        return self.image_shape[1], self.image_shape[0]

    def metadata(self) -> Metadata:
        """Return JSON data for the header of a record."""
        return {
            **size_metadata(self),
            "split": self._split,
            "class_names": self.class_names,
            "sha256": self._files_sha256,
            "origin": self._origin,
        }

    @cached_property
    def _files_sha256(self) -> str:
        return files_sha256(self._folder, [*self.image_files, *self.label_files])


def decode_indices(classes: Mapping[int, int], image: Image.Image) -> Pixels:
    """Return the label map of an image with one number per pixel.

    Args:
        classes: The class of every number that may occur; ``NO_CLASS`` for pixels without a class.
        image: An 8-bit image.
    """
    if image.mode not in ("L", "P"):
        raise ValueError(f"found an image of mode {image.mode}; expected 8-bit class indices, mode L or P.")
    table = np.full(256, -1, np.int16)
    table[list(classes)] = list(classes.values())
    numbers = np.asarray(image)
    labels = table[numbers]
    if (labels < 0).any():
        found = ", ".join(map(str, np.unique(numbers[labels < 0])[:5].tolist()))
        expected = ", ".join(map(str, sorted(classes)))
        raise ValueError(f"found the class index {found}; expected {expected}. Correct ignore_index or the file.")
    decoded: Pixels = labels.astype(np.uint8)
    return decoded


def decode_colors(classes: Mapping[tuple[int, int, int], int], image: Image.Image) -> Pixels:
    """Return the label map of a color image. Pixels of other colors have no class, as long as some pixels have one.

    Args:
        classes: The class of every color (red, green, blue); ``NO_CLASS`` for pixels without a class.
        image: A color image.
    """
    by_code = sorted((red << 16 | green << 8 | blue, label) for (red, green, blue), label in classes.items())
    codes, labels = (np.array(column) for column in zip(*by_code, strict=True))
    pixels = np.asarray(image.convert("RGB")).astype(np.int32) @ np.array([1 << 16, 1 << 8, 1], np.int32)
    nearest = np.searchsorted(codes, pixels).clip(max=len(codes) - 1)
    known = codes[nearest] == pixels
    if not known.any():
        raise ValueError("none of its colors is the color of a class. Put the official file there.")
    decoded: Pixels = np.where(known, labels[nearest], NO_CLASS).astype(np.uint8)
    return decoded


def select_sequences(dataset: object, names: Sequence[str]) -> dict[str, npt.NDArray[np.int64]]:
    """Return the indices of the frames of some sequences of a dataset, by their names.

    Raises:
        UsageError: The dataset has no sequences, or none of this name.
    """
    known: Mapping[str, npt.NDArray[np.int64]] = getattr(dataset, "sequences", {})
    for name in names:
        if name not in known:
            raise UsageError(
                f"The dataset {getattr(dataset, 'name', dataset)} has no sequence '{name}'. It has: "
                f"{', '.join(known) or 'none'}."
            )
    return {name: known[name] for name in names}
