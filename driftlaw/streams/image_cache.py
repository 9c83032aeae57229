"""The images of a domain by their numbers in the dataset: read from an archive, or corrupted now and kept for later."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from driftlaw.base import Domain
from driftlaw.corruptions import corrupt
from driftlaw.datasets import Archive, ArrayImages, ImageDataset
from driftlaw.streams.schedules import CLEAN

KEPT_BYTES = 2**31  # of images in main memory; a benchmark runs many methods over the same ones
KEPT_SHARE = 8  # and on a GPU an eighth of its memory, where that is more


class Pixels:
    """8-bit images of a dataset in any domain; several streams may share one object and its memory.

    Args:
        source: the clean images.
        archive: corrupted images to read in place of making them.
        seed: drives the corruptions.
        device: where images are corrupted and handed out.
        given: what the caller handed in as the source, where it was not found by its name.
    """

    def __init__(
        self,
        source: ImageDataset,
        archive: Archive | None,
        seed: int,
        device: torch.device | str,
        *,
        given: Any = None,
    ) -> None:
        self.source, self.archive, self.seed, self.given = source, archive, seed, given
        self.device = torch.device(device)
        self._kept: dict[Domain, _Kept] = {}

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image."""
        return (3, *self.source.image_shape)

    def of(self, domain: Domain, numbers: np.ndarray) -> Tensor:
        """Return the images (n, 3, h, w), uint8, with the given numbers in a domain; the round makes no difference."""
        domain = Domain(domain.name, domain.severity)
        kept = self._kept.get(domain) or self._make_room(domain)
        if kept is None:
            return self._made(domain, numbers)
        missing = numbers[~kept.there[numbers]]
        if len(missing):
            kept.images[torch.from_numpy(missing).to(self.device)] = self._made(domain, missing)
            kept.there[missing] = True
        return kept.images[torch.from_numpy(numbers).to(self.device)]

    def _make_room(self, domain: Domain) -> _Kept | None:
        """Return memory for a domain that is dear to make, None where it is cheap or there is no more room."""
        size = len(self.source) * int(np.prod(self.shape))
        if self._is_cheap(domain) or (len(self._kept) + 1) * size > _room(self.device):
            return None
        self._kept[domain] = _Kept(len(self.source), self.shape, self.device)
        return self._kept[domain]

    def _is_cheap(self, domain: Domain) -> bool:
        """Tell whether reading again costs little; clean images in files of their own are decoded for every domain."""
        return self.archive is not None or (domain.name == CLEAN and isinstance(self.source, ArrayImages))

    def _made(self, domain: Domain, numbers: np.ndarray) -> Tensor:
        if self.archive is not None and domain.name != CLEAN:
            return self._tensor(self.archive.images(domain.name, domain.severity, numbers))
        if domain.name == CLEAN:
            return self._tensor(self.source.images(numbers))
        clean = self.of(Domain(CLEAN, 0), numbers)
        return corrupt(clean, domain.name, domain.severity, seed=self.seed, indices=torch.from_numpy(numbers))

    def _tensor(self, pixels: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(pixels)).to(self.device).permute(0, 3, 1, 2).contiguous()


def _room(device: torch.device) -> int:
    """Return how many bytes of images may be kept."""
    if device.type != "cuda":
        return KEPT_BYTES
    _, whole = torch.cuda.mem_get_info(device)
    return max(KEPT_BYTES, whole // KEPT_SHARE)


class _Kept:
    """The images of a domain that have been made so far."""

    def __init__(self, count: int, shape: tuple[int, int, int], device: torch.device) -> None:
        self.images = torch.empty(count, *shape, dtype=torch.uint8, device=device)
        self.there = np.zeros(count, dtype=bool)
