"""The training data at a method's hand: batches of it as tensors, and the hash of what is in it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from driftlaw.errors import UsageError

REQUIRED_ATTRIBUTES = ("labels", "images", "num_classes", "metadata", "__len__")
AT_ONCE = 1000  # images that are hashed in one go


class TrainData:
    """A labelled dataset that batches are drawn from; no part of an adapter's state, and shared by its copies.

    Args:
        images: what has the face of ``driftlaw.datasets.ImageDataset``: ``labels``, ``num_classes``, ``metadata()``,
            ``len`` and ``images(numbers)``, uint8 (k, h, w, 3).
        cache: the folder to keep what is made of it in; one in the data folder where left out.
    """

    def __init__(self, images: Any, cache: Path | None = None) -> None:
        missing = [name for name in REQUIRED_ATTRIBUTES if not hasattr(images, name)]
        if missing:
            raise UsageError(
                f"source is a {type(images).__name__} without {', '.join(missing)}: expected labelled images such as "
                'driftlaw.datasets.load_dataset("cifar10", split="train") returns'
            )
        if len(images) == 0:
            raise UsageError("the source holds no image: give the training data")
        self.cache = cache
        self.num_classes = int(images.num_classes)
        self._images = images
        self._labels = torch.as_tensor(images.labels).long()

    @classmethod
    def of(cls, source: Any) -> TrainData:
        """Return ``source`` itself where it is one already, else a new one around it."""
        return source if isinstance(source, cls) else cls(source)

    def __deepcopy__(self, memo: dict[int, Any]) -> TrainData:
        return self  # gigabytes that nobody changes

    def __len__(self) -> int:
        return len(self._labels)

    def facts(self) -> dict[str, Any]:
        """Return plain data for a record's header."""
        return dict(self._images.metadata())

    @cached_property
    def sha256(self) -> str:
        """The hash of the images and labels: the dataset's own where it tells one."""
        told = self._images.metadata().get("sha256")
        if told:
            return str(told)
        digest = hashlib.sha256(self._labels.numpy().tobytes())
        for numbers in torch.arange(len(self)).split(AT_ONCE):
            digest.update(self._pixels(numbers).numpy().tobytes())
        return digest.hexdigest()

    def draw(self, like: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return as many images (n, c, h, w) and labels (n,) as ``like`` has images, drawn with replacement.

        Args:
            like: images of the stream, whose number, shape, device and dtype the result has.
            generator: on the CPU.
        """
        return self._batch(torch.randint(len(self), (len(like),), generator=generator), like)

    def batches(self, most: int, size: int, seed: int, like: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield batches of at most ``most`` images, each image once, in an order drawn from ``seed``.

        Images that do not fill a batch are left out, unless they are all there is.
        """
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))[:most]
        for place in range(number_of_batches(len(order), size)):
            yield self._batch(order[place * size : (place + 1) * size], like)

    def _batch(self, numbers: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        images = self._pixels(numbers).to(like.device).permute(0, 3, 1, 2)
        if images.shape[1:] != like.shape[1:]:
            raise UsageError(
                f"the source's images are {tuple(images.shape[1:])}, those of the stream {tuple(like.shape[1:])}: "
                "give the data that the network was trained on, in the stream's size"
            )
        return images.to(like.dtype).div(255), self._labels[numbers].to(like.device)

    def _pixels(self, numbers: Tensor) -> Tensor:
        return torch.as_tensor(self._images.images(numbers.numpy()))


def number_of_batches(images: int, size: int) -> int:
    """Return how many whole batches there are; one where there are fewer images than fill it.

    >>> number_of_batches(50_000, 200), number_of_batches(12, 200)
    (250, 1)
    """
    return max(images // size, 1)
