"""Images of a domain by dataset index: read from an archive, or corrupted on the fly and cached."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from driftlaw.base import Domain
from driftlaw.corruptions import corrupt
from driftlaw.corruptions.registry import Encoding
from driftlaw.datasets import Archive, ArrayImages, ImageDataset, ShardImages
from driftlaw.datasets.protocol import Pixels
from driftlaw.streams.ordering import Indices
from driftlaw.streams.schedules import CLEAN

CACHE_BYTES = 2**31
"""Size limit of the cache in main memory; a benchmark runs many methods on the same images."""
GPU_MEMORY_SHARE = 8
"""On a GPU the limit is this fraction (1/8) of its memory, if that is more than ``CACHE_BYTES``."""


class CorruptedImageCache:
    """8-bit images of a dataset in any domain; several streams may share one cache.

    Args:
        dataset: The clean images.
        archive: Corrupted images to read instead of computing them.
        seed: Seed of the corruptions.
        device: Where images are corrupted and stored.
        given: The object that the caller passed as dataset, if it was not found by name.
        encoding: Encoding of images that are corrupted on the fly; see ``corrupt``.
    """

    def __init__(
        self,
        dataset: ImageDataset,
        archive: Archive | None,
        seed: int,
        device: torch.device | str,
        *,
        given: Any = None,
        encoding: Encoding = "auto",
    ) -> None:
        self.dataset, self.archive, self.seed, self.given, self.encoding = dataset, archive, seed, given, encoding
        self.device = torch.device(device)
        # Per domain: images (n, 3, h, w), and which of them have been computed.
        self._cached: dict[Domain, tuple[Tensor, npt.NDArray[np.bool_]]] = {}

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image."""
        return (3, *self.dataset.image_shape)

    def get(self, domain: Domain, indices: Indices) -> Tensor:
        """Return uint8 images (k, 3, h, w) of a domain. All rounds of a domain have the same images."""
        domain = Domain(domain.name, domain.severity)
        entry = self._cached.get(domain) or self._allocate(domain)
        if entry is None:
            return self._compute(domain, indices)
        images, computed = entry
        missing = indices[~computed[indices]]
        if len(missing):
            images[torch.from_numpy(missing).to(self.device)] = self._compute(domain, missing)
            computed[missing] = True
        return images[torch.from_numpy(indices).to(self.device)]

    def _allocate(self, domain: Domain) -> tuple[Tensor, npt.NDArray[np.bool_]] | None:
        """Return memory for a domain, or None if reading it again is cheap or the cache is full."""
        # Clean images are cached too if they are files: every corruption would decode them again.
        in_memory = domain.name == CLEAN and isinstance(self.dataset, ArrayImages)
        if self.archive is not None or in_memory or isinstance(self.dataset, ShardImages):
            return None
        count, limit = len(self.dataset), CACHE_BYTES
        if self.device.type == "cuda":
            _, total_memory = torch.cuda.mem_get_info(self.device)
            limit = max(limit, total_memory // GPU_MEMORY_SHARE)
        if (len(self._cached) + 1) * count * int(np.prod(self.shape)) > limit:
            return None
        images = torch.empty(count, *self.shape, dtype=torch.uint8, device=self.device)
        self._cached[domain] = images, np.zeros(count, dtype=bool)
        return self._cached[domain]

    def _compute(self, domain: Domain, indices: Indices) -> Tensor:
        if self.archive is None and domain.name != CLEAN:
            return self._corrupt(self.get(Domain(CLEAN, 0), indices), domain, indices)
        return self._to_device(torch.from_numpy(read_pixels(self.dataset, self.archive, domain, indices)))

    def from_pixels(self, pixels: Tensor, domain: Domain, indices: Indices) -> Tensor:
        """Return what ``get`` returns, from the result of ``read_pixels``. Nothing is cached."""
        images = self._to_device(pixels)
        is_read = self.archive is not None or domain.name == CLEAN
        return images if is_read else self._corrupt(images, domain, indices)

    def _corrupt(self, clean: Tensor, domain: Domain, indices: Indices) -> Tensor:
        order, name, severity = torch.from_numpy(indices), domain.name, domain.severity
        return corrupt(clean, name, severity, seed=self.seed, indices=order, encoding=self.encoding)

    def _to_device(self, pixels: Tensor) -> Tensor:
        return pixels.to(self.device).permute(0, 3, 1, 2).contiguous()


def read_pixels(dataset: ImageDataset, archive: Archive | None, domain: Domain, indices: Indices) -> Pixels:
    """Return images of a domain as uint8 (k, h, w, 3): from the archive if there is one, else clean ones."""
    if archive is not None and domain.name != CLEAN:
        return np.ascontiguousarray(archive.images(domain.name, domain.severity, indices))
    return np.ascontiguousarray(dataset.images(indices))
