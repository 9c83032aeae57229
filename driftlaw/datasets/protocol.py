"""The ``ImageDataset`` protocol of clean labelled images, and its in-memory implementation."""

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from driftlaw.errors import DataError, UsageError
from driftlaw.files import MAX_CLASSES

Pixels = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]
Metadata = dict[str, Any]
SEVERITIES = 5
REQUIRED_ATTRIBUTES = ("name", "num_classes", "class_names", "labels", "image_shape", "images", "metadata")
"""What an object needs to be used as an ``ImageDataset``."""


class ImageDataset(Protocol):
    """Clean labelled images of one size, indexed from 0.

    Attributes:
        name: Name of the dataset.
        num_classes: Number of classes; 0 without labels.
        class_names: One name per class, in label order.
        labels: int64 (n,), the class of every image; -1 without labels.
    """

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

    def metadata(self) -> Metadata:
        """Return JSON data for the header of a record: name, split, count, sha256, origin."""
        ...


class ArrayImages:
    """An image dataset held in memory.

    >>> dataset = ArrayImages("grey", np.full((2, 4, 4, 3), 128, np.uint8), [0, 1], ["cat", "dog"])
    >>> len(dataset), dataset.image_shape, dataset.images([1]).shape
    (2, (4, 4), (1, 4, 4, 3))

    Args:
        name: Name of the dataset.
        images: uint8 (n, h, w, 3).
        labels: n integers from 0.
        class_names: One name per class.
        metadata: More JSON data for records, for example ``split`` and ``origin``. If it contains ``sha256``, that must
            be the ``content_sha256`` of the images; it is not computed again.
    """

    def __init__(
        self,
        name: str,
        images: Pixels,
        labels: npt.ArrayLike,
        class_names: Sequence[str],
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.class_names = list(class_names)
        self.num_classes = len(self.class_names)
        self.labels = checked_labels(labels, f"'{name}'", self.num_classes)
        self._images = images
        self._metadata = dict(metadata or {})
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[-1] != 3:
            raise DataError(f"The images of '{name}' are {images.dtype} {images.shape}; expected uint8 (n, h, w, 3).")
        self.image_shape: tuple[int, int] = images.shape[1:3]
        if self.labels.shape != (len(images),):
            raise DataError(
                f"'{name}' has {len(images)} images and labels of shape {self.labels.shape}; expected one per image."
            )

    def __len__(self) -> int:
        return len(self.labels)

    def images(self, indices: npt.ArrayLike) -> Pixels:
        """Return the images at ``indices`` as uint8 (k, h, w, 3)."""
        return self._images[checked_indices(indices, len(self))]

    @cached_property
    def content_sha256(self) -> str:
        """sha256 of pixels and labels; see the function ``content_sha256``."""
        return self._metadata.get("sha256") or content_sha256(self._images, self.labels)

    def metadata(self) -> Metadata:
        """Return JSON data for the header of a record."""
        return {**size_metadata(self), **self._metadata, "sha256": self.content_sha256}


def size_metadata(dataset: ImageDataset) -> Metadata:
    """Return the part of ``metadata`` that all datasets have in common: name, numbers of images and classes, size."""
    counts = {"name": dataset.name, "count": len(dataset), "num_classes": dataset.num_classes}
    return {**counts, "image_shape": list(dataset.image_shape)}


def content_sha256(images: Pixels, labels: Labels) -> str:
    """Return the sha256 of the pixels, in the order (n, h, w, 3), followed by the labels as little-endian int64.

    It does not depend on the file format that the images were read from.
    """
    digest = hashlib.sha256(np.ascontiguousarray(images).data)
    digest.update(np.ascontiguousarray(labels, dtype="<i8").data)
    return digest.hexdigest()


def checked_labels(labels: npt.ArrayLike, where: object, num_classes: int = MAX_CLASSES) -> Labels:
    """Return ``labels`` as int64; raise ``DataError`` unless all are in 0 … num_classes − 1.

    The default is a limit: lists with one entry per class would use all memory for a label such as 2⁴⁰.
    """
    array = np.asarray(labels)
    if array.size and not (array.min() >= 0 and array.max() < num_classes):
        found = f"{array.min()} to {array.max()}"
        raise DataError(f"The labels of {where} range from {found}; expected 0 to {num_classes - 1:,}.")
    return array.astype(np.int64)


def checked_indices(indices: npt.ArrayLike, count: int) -> npt.NDArray[np.int64]:
    """Return ``indices`` as int64 (k,); raise ``UsageError`` unless all are in 0 … count − 1."""
    array = np.asarray(indices, dtype=np.int64).reshape(-1)
    if array.size and (array.min() < 0 or array.max() >= count):
        raise UsageError(f"Image indices range from {array.min()} to {array.max()}; expected 0 to {count - 1}.")
    return array


def checked_severity(severity: int) -> int:
    """Return ``severity``; raise ``UsageError`` unless it is 1 to 5."""
    if severity not in range(1, SEVERITIES + 1):
        raise UsageError(f"Found severity {severity}; expected one of 1, 2, 3, 4, 5.")
    return severity
