"""What a set of clean labelled images looks like to everyone else, and the one that is held in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from driftlaw.errors import DataError, UsageError

Pixels = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]
Facts = dict[str, Any]
SEVERITIES = 5


class ImageDataset(Protocol):
    """Clean labelled images of one size, counted from 0."""

    name: str
    num_classes: int
    class_names: list[str]
    labels: Labels

    def __len__(self) -> int:
        """Return the number of images."""
        ...

    @property
    def image_shape(self) -> tuple[int, int]:
        """Height and width of every image."""
        ...

    def images(self, indices: npt.ArrayLike) -> Pixels:
        """Return the images at ``indices`` as uint8 (k, h, w, 3)."""
        ...

    def facts(self) -> Facts:
        """Return plain data for a record's header: name, split, count, sha256, origin."""
        ...


class ArrayImages:
    """Images held in memory.

    Args:
        name: what the set is called.
        images: uint8 (n, h, w, 3).
        labels: n whole numbers from 0.
        class_names: one name a class.
        facts: what else a record should know, such as ``split`` and ``origin``; a ``sha256`` among them is taken for
            ``content_sha256`` of these images, which saves counting it again.
    """

    def __init__(
        self,
        name: str,
        images: Pixels,
        labels: npt.ArrayLike,
        class_names: Sequence[str],
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.class_names = list(class_names)
        self.num_classes = len(self.class_names)
        self.labels = np.asarray(labels, dtype=np.int64)
        self._images = images
        self._facts = dict(facts or {})
        _check_fit(name, images, self.labels, self.num_classes)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def image_shape(self) -> tuple[int, int]:
        """Height and width of every image."""
        return self._images.shape[1], self._images.shape[2]

    def images(self, indices: npt.ArrayLike) -> Pixels:
        """Return the images at ``indices`` as uint8 (k, h, w, 3)."""
        return self._images[checked_indices(indices, len(self))]

    @cached_property
    def content_sha256(self) -> str:
        """The sha256 of pixels and labels, see the function of this name."""
        return self._facts.get("sha256") or content_sha256(self._images, self.labels)

    def facts(self) -> Facts:
        """Return plain data for a record's header."""
        counted = {"name": self.name, "count": len(self), "num_classes": self.num_classes}
        return {**counted, "image_shape": list(self.image_shape), **self._facts, "sha256": self.content_sha256}


def content_sha256(images: Pixels, labels: Labels) -> str:
    """Return the sha256 of the pixels (n, h, w, 3 in this order) followed by the labels as little-endian int64.

    The same images have the same hash whatever file they were read from.
    """
    digest = hashlib.sha256(np.ascontiguousarray(images).data)
    digest.update(np.ascontiguousarray(labels, dtype="<i8").data)
    return digest.hexdigest()


def checked_indices(indices: npt.ArrayLike, count: int) -> npt.NDArray[np.int64]:
    """Return ``indices`` as int64 (k,), or raise where one of them is not in 0 … count − 1."""
    found = np.asarray(indices, dtype=np.int64).reshape(-1)
    if found.size and (found.min() < 0 or found.max() >= count):
        raise UsageError(f"image indices run from {found.min()} to {found.max()}; this set has 0 to {count - 1}")
    return found


def checked_severity(severity: int) -> int:
    """Return ``severity``, or raise where it is not one of the five."""
    if severity not in range(1, SEVERITIES + 1):
        raise UsageError(f"severity {severity} is not one of 1, 2, 3, 4, 5")
    return severity


def _check_fit(name: str, images: Pixels, labels: Labels, num_classes: int) -> None:
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[-1] != 3:
        raise DataError(f"images of «{name}» are {images.dtype} {images.shape}; expected uint8 (n, h, w, 3)")
    if labels.shape != (len(images),):
        raise DataError(f"«{name}» has {len(images)} images and labels of shape {labels.shape}; expected one an image")
    if labels.size and not (labels.min() >= 0 and labels.max() < num_classes):
        raise DataError(
            f"labels of «{name}» run from {labels.min()} to {labels.max()}; expected 0 to {num_classes - 1}"
        )
