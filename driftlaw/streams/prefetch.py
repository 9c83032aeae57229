"""Prefetching: worker processes read and decode the images of the next batches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.multiprocessing import reductions
from torch.utils.data import DataLoader, Dataset

from driftlaw.base import Domain
from driftlaw.errors import DriftlawError
from driftlaw.streams.image_cache import CorruptedImageCache, read_pixels
from driftlaw.streams.ordering import Indices

READS_PER_WORKER = 2


@dataclass(frozen=True)
class Read:
    """Images of a stream that are read together: one batch, or several.

    Attributes:
        domain: The domain that batches report.
        first_batch: Number of the first batch within the domain.
        indices: Dataset indices of the images.
        parts: Domains of the images, and the rows that belong to them.
    """

    domain: Domain
    first_batch: int
    indices: Indices
    parts: Sequence[tuple[Domain, Indices | slice]]


class PixelReader(Dataset[Tensor | DriftlawError]):
    """Dataset of the pixels of reads, uint8 (n, h, w, 3), for the workers of a DataLoader.

    An error is returned and not raised, because torch would replace its message by a traceback.
    """

    def __init__(self, cache: CorruptedImageCache, reads: Sequence[Read]) -> None:
        self.dataset, self.archive, self.reads = cache.dataset, cache.archive, reads

    def __len__(self) -> int:
        return len(self.reads)

    def __getitem__(self, number: int) -> Tensor | DriftlawError:
        read = self.reads[number]
        pixels = np.empty((len(read.indices), *self.dataset.image_shape, 3), np.uint8)
        try:
            for domain, rows in read.parts:
                pixels[rows] = read_pixels(self.dataset, self.archive, domain, read.indices[rows])
        except DriftlawError as error:
            return error
        return torch.from_numpy(pixels)


def prefetch(cache: CorruptedImageCache, reads: Sequence[Read], workers: int) -> Iterator[tuple[Read, Tensor]]:
    """Yield reads and their pixels in order. Each worker is at most ``READS_PER_WORKER`` reads ahead."""
    loader = DataLoader(
        PixelReader(cache, reads),
        batch_size=None,
        num_workers=workers,
        prefetch_factor=READS_PER_WORKER,
        pin_memory=cache.device.type == "cuda",
        generator=torch.Generator(),  # torch would draw a number from the global one
    )
    for read, pixels in zip(reads, loader, strict=True):
        if isinstance(pixels, DriftlawError):
            raise pixels
        # torch keeps a few bytes of the last 128 tensors from workers. Each of them would keep malloc from using the
        # memory of a whole batch again.
        reductions.shared_cache.free_dead_references()
        yield read, pixels


def read_images(cache: CorruptedImageCache, read: Read, pixels: Tensor | None = None) -> Tensor:
    """Return the images of a read, uint8 (n, 3, h, w), corrupted, on the device of the cache.

    Args:
        cache: The images.
        read: Which of them.
        pixels: What a worker has read. If None, the cache reads them.
    """

    def part(domain: Domain, rows: Indices | slice) -> Tensor:
        if pixels is None:
            return cache.get(domain, read.indices[rows])
        return cache.from_pixels(pixels[rows], domain, read.indices[rows])

    if len(read.parts) == 1:
        return part(*read.parts[0])
    images = torch.empty(len(read.indices), *cache.shape, dtype=torch.uint8, device=cache.device)
    for domain, rows in read.parts:
        images[torch.as_tensor(rows, device=cache.device)] = part(domain, rows)
    return images
