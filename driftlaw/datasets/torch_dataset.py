"""Anybody's torch ``Dataset`` of (image, label) with the face of our own images."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from driftlaw.datasets import ImageDataset
from driftlaw.datasets.protocol import Facts, checked_indices
from driftlaw.errors import DataError, UsageError

KEPT_BYTES = 2**30  # of pixels; a larger dataset is asked for its images again whenever they are needed
_FACE = ("name", "num_classes", "class_names", "labels", "image_shape", "images", "facts")


def as_image_dataset(given: Any) -> ImageDataset:
    """Return ``given`` if it has the face of an ``ImageDataset``, else a torch ``Dataset`` wrapped so that it has."""
    if all(hasattr(given, name) for name in _FACE):
        return given
    if not hasattr(given, "__getitem__") or not hasattr(given, "__len__"):
        raise UsageError(
            f"the source is a {type(given).__name__}; expected a torch Dataset with a length, of (image, label), or an "
            "ImageDataset"
        )
    return TorchDatasetImages(given)


class TorchDatasetImages:
    """The images of a torch ``Dataset``, as 8-bit pixels.

    An item is (image, label): the image a PIL picture, or a tensor or array of bytes, or of floats in [0, 1];
    tensors are (c, h, w) or (h, w), arrays (h, w, c) or (h, w). Grey becomes RGB. Everything is read once, for its
    labels; pixels stay in memory up to 1 GiB and are asked for again beyond that, so a dataset must give the same
    image for the same index every time: leave random augmentation out of it, and normalisation to the model.

    Args:
        dataset: what has a length and items.
    """

    def __init__(self, dataset: Any) -> None:
        if len(dataset) == 0:
            raise UsageError(f"the {type(dataset).__name__} given as source is empty")
        self.dataset = dataset
        self.name = f"dataset:{type(dataset).__name__}"
        first, _ = self._item(0)
        self.image_shape: tuple[int, int] = first.shape[:2]
        self._kept = np.empty((len(dataset), *first.shape), np.uint8) if self._fits(first.nbytes) else None
        self.labels = np.fromiter(self._all_labels(), dtype=np.int64, count=len(dataset))
        if self.labels.min() < 0:
            raise DataError(f"labels of {self.name} run from {self.labels.min()}; expected whole numbers from 0")
        self.class_names = self._class_names()
        self.num_classes = len(self.class_names)

    def __len__(self) -> int:
        return len(self.dataset)

    def images(self, indices: npt.ArrayLike) -> np.ndarray:
        """Return the images at ``indices`` as uint8 (k, h, w, 3)."""
        chosen = checked_indices(indices, len(self))
        if self._kept is not None:
            return self._kept[chosen]
        out = np.empty((len(chosen), *self.image_shape, 3), dtype=np.uint8)
        for row, index in enumerate(chosen.tolist()):
            out[row], label = self._checked(index)
            if label != self.labels[index]:
                raise DataError(f"item {index} of {self.name} had label {self.labels[index]} and now has {label}")
        return out

    def facts(self) -> Facts:
        """Return plain data for a record's header; the first call reads everything to hash it."""
        kind = type(self.dataset)
        return {
            "name": self.name,
            "count": len(self),
            "num_classes": self.num_classes,
            "image_shape": list(self.image_shape),
            "sha256": self._content_sha256,
            "origin": f"the caller's {kind.__module__}.{kind.__qualname__}",
        }

    @cached_property
    def _content_sha256(self) -> str:
        """The hash that ``driftlaw.datasets.content_sha256`` gives, counted in pieces."""
        digest = hashlib.sha256()
        for start in range(0, len(self), 256):
            digest.update(self.images(np.arange(start, min(start + 256, len(self)))).data)
        digest.update(np.ascontiguousarray(self.labels, dtype="<i8").data)
        return digest.hexdigest()

    def _fits(self, bytes_an_image: int) -> bool:
        return bytes_an_image * len(self.dataset) <= KEPT_BYTES

    def _all_labels(self) -> Iterator[int]:
        for index in range(len(self.dataset)):
            pixels, label = self._checked(index)
            if self._kept is not None:
                self._kept[index] = pixels
            yield label

    def _class_names(self) -> list[str]:
        named = getattr(self.dataset, "classes", None)
        count = int(self.labels.max()) + 1
        if isinstance(named, list | tuple) and len(named) >= count:
            return [str(name) for name in named]
        return [str(number) for number in range(count)]

    def _checked(self, index: int) -> tuple[np.ndarray, int]:
        pixels, label = self._item(index)
        if pixels.shape[:2] != self.image_shape:
            raise UsageError(
                f"item {index} of {self.name} is {pixels.shape[0]}×{pixels.shape[1]} pixels, the first one "
                f"{self.image_shape[0]}×{self.image_shape[1]}: bring all images to one size in the dataset's transform"
            )
        return pixels, label

    def _item(self, index: int) -> tuple[np.ndarray, int]:
        item = self.dataset[index]
        if not isinstance(item, tuple | list) or len(item) < 2:
            raise UsageError(f"item {index} of {self.name} is a {type(item).__name__}; expected (image, label)")
        try:
            return as_pixels(item[0]), int(item[1])
        except (UsageError, TypeError, ValueError) as error:
            raise UsageError(f"item {index} of {self.name}: {error}") from error


def as_pixels(image: Any) -> np.ndarray:
    """Return one image as uint8 (h, w, 3); see ``TorchDatasetImages`` for what it may be."""
    if isinstance(image, Image.Image):
        return np.asarray(image.convert("RGB"))
    if isinstance(image, Tensor):
        values = image.detach().cpu()
        values = (values.movedim(0, -1) if values.ndim == 3 else values).contiguous()
    elif isinstance(image, np.ndarray):
        values = torch.from_numpy(np.ascontiguousarray(image))
    else:
        raise UsageError(f"the image is a {type(image).__name__}; expected a PIL picture, a tensor or an array")
    if values.ndim == 2:
        values = values[..., None]
    if values.ndim != 3 or values.shape[-1] not in (1, 3):
        raise UsageError(f"the image has shape {tuple(image.shape)}; expected one or three channels")
    return _as_bytes(values).expand(-1, -1, 3).contiguous().numpy()


def _as_bytes(values: Tensor) -> Tensor:
    if values.dtype == torch.uint8:
        return values
    if not values.is_floating_point():
        raise UsageError(f"the image is of {values.dtype}; expected bytes, or floats in [0, 1]")
    low, high = (float(bound) for bound in values.aminmax())
    if not (low >= -1e-3 and high <= 1 + 1e-3):
        raise UsageError(
            f"its values run from {low:.3g} to {high:.3g}; expected [0, 1]: take the normalisation out of the "
            "dataset's transform, it belongs into the model"
        )
    return values.clamp(0, 1).mul(255).round().to(torch.uint8)
