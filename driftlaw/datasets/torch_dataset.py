"""Adapter that makes a torch ``Dataset`` of (image, label) an ``ImageDataset``."""

import hashlib
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from driftlaw.datasets.protocol import REQUIRED_ATTRIBUTES, ImageDataset, Pixels, checked_indices, checked_labels
from driftlaw.errors import DataError, UsageError

CACHE_BYTES = 2**30
"""Datasets with more bytes of pixels than this are read again whenever images are needed."""


def as_image_dataset(given: Any) -> ImageDataset:
    """Return ``given`` if it implements ``ImageDataset``, else wrap a torch ``Dataset``.

    Raises:
        UsageError: ``given`` is neither.
    """
    if all(hasattr(given, name) for name in REQUIRED_ATTRIBUTES):
        dataset: ImageDataset = given
        return dataset
    if not hasattr(given, "__getitem__") or not hasattr(given, "__len__"):
        raise UsageError(
            f"dataset is a {type(given).__name__}; expected a torch Dataset of (image, label) with a length, or an "
            f"object with the attributes {', '.join(REQUIRED_ATTRIBUTES)} (driftlaw.datasets.ImageDataset)."
        )
    return TorchDatasetImages(given)


class TorchDatasetImages:
    """The images of a torch ``Dataset`` as 8-bit pixels.

    An item is (image, label). The image is a PIL image, or a tensor or array of uint8, or of floats in [0, 1]. Tensors
    are (c, h, w) or (h, w), arrays (h, w, c) or (h, w). Grayscale becomes RGB.

    All items are read once, for their labels. Up to 1 GiB of pixels is kept in memory; larger datasets are read again
    on access. An index must therefore always give the same image: do not use random augmentation. Leave normalisation
    to the model.

    >>> dataset = torch.utils.data.TensorDataset(torch.zeros(4, 3, 8, 8), torch.tensor([0, 1, 1, 0]))
    >>> images = TorchDatasetImages(dataset)
    >>> images.num_classes, images.images([0, 3]).shape
    (2, (2, 8, 8, 3))

    Args:
        dataset: An object with a length and items.
    """

    def __init__(self, dataset: Any) -> None:
        if len(dataset) == 0:
            raise UsageError(f"The dataset ({type(dataset).__name__}) is empty.")
        self.dataset = dataset
        self.name = f"dataset:{type(dataset).__name__}"
        first, _ = self._item(0)
        self.image_shape: tuple[int, int] = (first.shape[0], first.shape[1])
        fits = first.nbytes * len(dataset) <= CACHE_BYTES
        self._cached = np.empty((len(dataset), *first.shape), np.uint8) if fits else None
        labels = []
        for index in range(len(dataset)):
            pixels, label = self._checked_item(index)
            labels.append(label)
            if self._cached is not None:
                self._cached[index] = pixels
        self.labels = checked_labels(labels, self.name)
        names, count = getattr(dataset, "classes", None), int(self.labels.max()) + 1
        named = names if isinstance(names, list | tuple) and len(names) >= count else range(count)
        self.class_names = [str(name) for name in named]
        self.num_classes = len(self.class_names)

    def __len__(self) -> int:
        return len(self.dataset)

    def images(self, indices: npt.ArrayLike) -> Pixels:
        """Return the images at ``indices`` as uint8 (k, h, w, 3)."""
        chosen = checked_indices(indices, len(self))
        if self._cached is not None:
            return self._cached[chosen]
        out = np.empty((len(chosen), *self.image_shape, 3), dtype=np.uint8)
        for row, index in enumerate(chosen.tolist()):
            out[row], label = self._checked_item(index)
            if label != self.labels[index]:
                raise DataError(
                    f"Item {index} of {self.name} had label {self.labels[index]} and now has {label}. The dataset must "
                    "return the same item for the same index."
                )
        return out

    def metadata(self) -> dict[str, Any]:
        """Return JSON data for the header of a record; the first call reads everything to hash it."""
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
        """Same value as ``driftlaw.datasets.content_sha256``, computed in chunks."""
        digest = hashlib.sha256()
        for start in range(0, len(self), 256):
            digest.update(self.images(np.arange(start, min(start + 256, len(self)))).data)
        digest.update(np.ascontiguousarray(self.labels, dtype="<i8").data)
        return digest.hexdigest()

    def _checked_item(self, index: int) -> tuple[Pixels, int]:
        pixels, label = self._item(index)
        if pixels.shape[:2] != self.image_shape:
            raise UsageError(
                f"Item {index} of {self.name} has {pixels.shape[0]}×{pixels.shape[1]} pixels, but the first has "
                f"{self.image_shape[0]}×{self.image_shape[1]}. Resize all images in the dataset's transform."
            )
        return pixels, label

    def _item(self, index: int) -> tuple[Pixels, int]:
        item = self.dataset[index]
        if not isinstance(item, tuple | list) or len(item) < 2:
            raise UsageError(f"Item {index} of {self.name} is a {type(item).__name__}; expected (image, label).")
        try:
            return as_pixels(item[0]), int(item[1])
        except (UsageError, TypeError, ValueError) as error:
            raise UsageError(f"Item {index} of {self.name}: {error}") from error


def as_pixels(image: Any) -> Pixels:
    """Return one image as uint8 (h, w, 3); see ``TorchDatasetImages`` for accepted types."""
    if isinstance(image, Image.Image):
        return np.asarray(image.convert("RGB"))
    if isinstance(image, Tensor):
        values = image.detach().cpu()
        values = (values.movedim(0, -1) if values.ndim == 3 else values).contiguous()
    elif isinstance(image, np.ndarray):
        values = torch.from_numpy(np.ascontiguousarray(image))
    else:
        raise UsageError(f"The image is a {type(image).__name__}; expected a PIL image, a tensor or an array.")
    if values.ndim == 2:
        values = values[..., None]
    if values.ndim != 3 or values.shape[-1] not in (1, 3):
        raise UsageError(f"The image has shape {tuple(image.shape)}; expected one or three channels.")
    if values.dtype != torch.uint8:
        if not values.is_floating_point():
            raise UsageError(f"The image has dtype {values.dtype}; expected uint8, or floats in [0, 1].")
        low, high = (float(bound) for bound in values.aminmax())
        if not (low >= -1e-3 and high <= 1 + 1e-3):
            raise UsageError(
                f"Its values range from {low:.3g} to {high:.3g}; expected [0, 1]. Remove the normalisation from the "
                "dataset's transform: it belongs into the model."
            )
        values = values.clamp(0, 1).mul(255).round().to(torch.uint8)
    pixels: Pixels = values.expand(-1, -1, 3).contiguous().numpy()
    return pixels
