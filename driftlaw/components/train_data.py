"""Training data for methods that need it: batches as tensors, and a content hash."""

import hashlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from driftlaw.errors import UsageError

REQUIRED_ATTRIBUTES = ("labels", "images", "num_classes", "metadata", "__len__")
HASH_BATCH = 1000  # images per update of the hash


class TrainData:
    """Labelled training images as batches of tensors; not part of an adapter's state, and shared by its copies.

    Args:
        images: an object that implements `driftlaw.datasets.ImageDataset`: ``labels``, ``num_classes``,
            ``metadata()``, ``len()`` and ``images(indices)``, which returns uint8 (k, h, w, 3).
        cache: directory for results that are computed from the data. If None, `driftlaw.torch_files.cache_dir`.

    Raises:
        UsageError: ``images`` lacks one of these attributes or is empty, or a label is not one of its classes.
    """

    def __init__(self, images: Any, cache: Path | None = None) -> None:
        missing = [name for name in REQUIRED_ATTRIBUTES if not hasattr(images, name)]
        if missing:
            raise UsageError(
                f"train_data is a {type(images).__name__} without {', '.join(missing)}. Expected a torch Dataset of "
                "(image, label), such as loader.dataset, or driftlaw.datasets.load_dataset('cifar10', split='train')."
            )
        if len(images) == 0:
            raise UsageError("train_data contains no images. Pass the data that the model was trained on.")
        self.cache = cache
        self.num_classes = int(images.num_classes)
        self._images = images
        labels = torch.as_tensor(images.labels)
        if labels.is_floating_point() or labels.is_complex() or labels.shape != (len(images),):
            raise UsageError(
                f"The labels of train_data are {labels.dtype} of shape {tuple(labels.shape)}. Expected one integer per "
                f"image, {len(images)} in total."
            )
        low, high = (int(label) for label in labels.long().aminmax())
        if low < 0 or high >= self.num_classes:
            raise UsageError(
                f"The labels of train_data are {low} to {high}. Expected 0 to {self.num_classes - 1}, for "
                f"{self.num_classes} classes."
            )
        self._labels = labels.long()

    @classmethod
    def of(cls, train_data: Any) -> Self:
        """Return ``train_data`` if it is a TrainData, otherwise a new TrainData of it."""
        return train_data if isinstance(train_data, cls) else cls(train_data)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # large and never modified

    def __len__(self) -> int:
        return len(self._labels)

    def metadata(self) -> dict[str, Any]:
        """Return the JSON description of the dataset for the header of a record."""
        return dict(self._images.metadata())

    @cached_property
    def sha256(self) -> str:
        """Hash of images and labels: the dataset's own if its metadata contains one."""
        stored = self._images.metadata().get("sha256")
        if stored:
            return str(stored)
        digest = hashlib.sha256(self._labels.numpy().tobytes())
        for indices in torch.arange(len(self)).split(HASH_BATCH):
            digest.update(self._pixels(indices).numpy().tobytes())
        return digest.hexdigest()

    def draw(self, like: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return images (n, c, h, w) and labels (n,), drawn with replacement.

        Args:
            like: test images; the result has their number, shape, device and dtype.
            generator: CPU generator.
        """
        return self._batch(torch.randint(len(self), (len(like),), generator=generator), like)

    def batches(self, limit: int, size: int, seed: int, like: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield batches of images (size, c, h, w) and labels (size,) without replacement, in random order.

        Args:
            limit: maximum number of images in total.
            size: images per batch. An incomplete last batch is dropped, unless it is the only one.
            seed: seed of the order.
            like: test images; the result has their shape, device and dtype.
        """
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))[:limit]
        for index in range(number_of_batches(len(order), size)):
            yield self._batch(order[index * size : (index + 1) * size], like)

    def _batch(self, indices: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        images = self._pixels(indices).to(like.device).permute(0, 3, 1, 2)
        if images.shape[1:] != like.shape[1:]:
            raise UsageError(
                f"The images of train_data have shape {tuple(images.shape[1:])}, the test images have shape "
                f"{tuple(like.shape[1:])}. Pass the data that the model was trained on, in the size of the test images."
            )
        return images.to(like.dtype).div(255), self._labels[indices].to(like.device)

    def _pixels(self, indices: Tensor) -> Tensor:
        return torch.as_tensor(self._images.images(indices.numpy()))


def number_of_batches(images: int, size: int) -> int:
    """Return the number of complete batches, at least 1.

    >>> number_of_batches(50_000, 200), number_of_batches(12, 200)
    (250, 1)
    """
    return max(images // size, 1)
