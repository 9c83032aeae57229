"""Streams of corrupted images: a labelled dataset, domain after domain, in a fixed order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from driftlaw.base import Batch, Domain, Stream
from driftlaw.corruptions import is_large
from driftlaw.corruptions.registry import resolve_encoding
from driftlaw.datasets import ArchiveDataset, ShardImages
from driftlaw.datasets.label_maps import select_sequences
from driftlaw.errors import UsageError
from driftlaw.streams.image_cache import CorruptedImageCache
from driftlaw.streams.ordering import Indices, image_order
from driftlaw.streams.prefetch import Read, prefetch, read_images
from driftlaw.streams.schedules import CLEAN, MIXED, list_domains
from driftlaw.streams.settings import StreamSettings

GPU_CHUNK_VALUES = 2**24  # pixel values corrupted per call on a GPU, where launch overhead dominates small batches


@dataclass(frozen=True)
class Segment:
    """Consecutive images of one domain.

    Attributes:
        domain: The domain that batches report.
        indices: Dataset indices of the images, in stream order.
        domains: The domains that are mixed, if there are several.
        domain_of: For each image, its position in ``domains``.
    """

    domain: Domain
    indices: Indices
    domains: tuple[Domain, ...] = ()
    domain_of: Indices | None = None


class CorruptedStream(Stream):
    """Batches of a labelled dataset, domain after domain; ``make_stream`` creates one.

    Args:
        settings: Settings of the stream.
        cache: The images, clean and corrupted.
        workers: Number of processes that read images in advance. With 0, images are read when they are needed, and
            those of folders are cached.
    """

    def __init__(self, settings: StreamSettings, cache: CorruptedImageCache, workers: int = 0) -> None:
        self.cache, self.workers = cache, workers
        self.dataset, self.archive, self.device = cache.dataset, cache.archive, cache.device
        self.num_classes = self.dataset.num_classes
        if isinstance(self.dataset, ArchiveDataset) and CLEAN in settings.corruptions:
            name = self.dataset.name
            raise UsageError(
                f"'{name}' is an archive of corrupted images and has no clean images. Pass the dataset it was made "
                f"from as dataset, and '{name}' as archive."
            )
        has_maps = hasattr(self.dataset, "label_maps")
        # Such as frames of a video.
        in_order = not self.num_classes or has_maps or isinstance(self.dataset, ShardImages)
        if in_order and "order" not in settings.model_fields_set:
            settings = settings.model_copy(update={"order": "as-is"})
        if (not self.num_classes or has_maps) and settings.order == "dirichlet":
            raise UsageError(
                f"order='dirichlet' needs a label per image, but {self.dataset.name} has none. Use order='as-is'."
            )
        self.settings = settings
        sequences = select_sequences(self.dataset, settings.sequences) if settings.sequences else {}
        self.sequences = {
            name: indices[self._order(self.dataset.labels[indices])] for name, indices in sequences.items()
        }
        self.indices = np.concatenate([*self.sequences.values()]) if sequences else self._order(self.dataset.labels)
        if len(self.indices) == 0:
            raise UsageError(f"The dataset {self.dataset.name} contains no images. Use a dataset with images.")
        self._segments = self._make_segments()
        values_per_batch = settings.batch_size * int(np.prod(cache.shape))
        self.batches_per_chunk = max(GPU_CHUNK_VALUES // values_per_batch, 1) if self.device.type == "cuda" else 1

    @property
    def reset_on(self) -> Literal["never", "domain"]:
        """When the evaluator resets the adapter to the source model."""
        return "domain" if self.settings.schedule == "reset" else "never"

    @property
    def encoding(self) -> Literal["jpeg85", "none"] | None:
        """Encoding of large images that are corrupted on the fly. None for other images, which are not encoded."""
        if (
            self.archive is not None
            or not is_large(*self.dataset.image_shape)
            or not set(self.settings.corruptions) - {CLEAN}
        ):
            return None
        return resolve_encoding(self.settings.encoding, *self.dataset.image_shape)

    def __len__(self) -> int:
        return sum(self._num_batches(segment) for segment in self._segments)

    def __repr__(self) -> str:
        names, size = self.settings.corruptions, self.settings.batch_size
        domains = ", ".join(names) if len(names) < 4 else f"{len(names)} corruptions"
        images = f"{len(self.indices)} images per domain, {len(self)} batches of {size}"
        return f"<CorruptedStream: {self.dataset.name}, {self.settings.schedule}, {domains}, {images}>"

    def __iter__(self) -> Iterator[Batch]:
        return self.iter_from(0)

    def iter_from(self, first: int) -> Iterator[Batch]:
        """Iterate from batch ``first``; images of earlier batches are not read."""
        reads: Iterator[tuple[Read, Tensor | None]] = ((read, None) for read in self._reads(first))
        if self.workers:
            reads = prefetch(self.cache, list(self._reads(first)), self.workers)
        index, size = first, self.settings.batch_size
        for read, pixels in reads:
            images = read_images(self.cache, read, pixels)
            label_maps = getattr(self.dataset, "label_maps", None)
            found = label_maps(read.indices) if label_maps else np.asarray(self.dataset.labels)[read.indices]
            labels = torch.from_numpy(found).to(self.device)
            batches = zip(torch.split(images, size), torch.split(labels, size), strict=True)
            for number, (batch, batch_labels) in enumerate(batches, start=read.first_batch):
                known = batch_labels if self.num_classes else None
                yield Batch(batch.to(torch.float32).div(255), known, read.domain, index, starts_domain=number == 0)
                index += 1

    def clean(self, limit: int | None = None) -> CorruptedStream:
        """Return a stream of the same images without corruption, shuffled, with at most ``limit`` images."""
        count = min(len(self.indices), limit or len(self.indices))
        changes = {"schedule": "continual", "corruptions": (CLEAN,), "order": "shuffled", "limit": count}
        changes["sequences"] = None
        return CorruptedStream(self.settings.model_copy(update=changes), self.cache, self.workers)

    def recipe(self) -> dict[str, Any]:
        """Return a JSON description of settings and data, from which ``make_stream`` rebuilds the stream."""
        derived = {
            "dataset": self.dataset.metadata(),
            "images_per_domain": None if self.sequences else len(self.indices),
            "pixels": "generated" if self.archive is None else "archive",
        }
        if self.archive is not None:
            derived["archive"] = self._archive_metadata
        if self.encoding is not None:
            derived["encoding"] = self.encoding
            if any("frost" in name.split("+") for name in self.settings.corruptions):  # enlarged in earlier versions
                derived["frost_photographs"] = "full size"
        # Recipes of other streams are the same as in versions without an encoding, sequences and a size.
        new = {name for name in ("sequences", "size") if getattr(self.settings, name) is None}
        return self.settings.model_dump(mode="json", exclude={"encoding", *new}) | derived

    @cached_property
    def _archive_metadata(self) -> dict[str, Any]:
        """Metadata of the archive files in use, under the name the caller used. Hashing the files can be slow."""
        assert self.archive is not None
        corruptions = sorted(set(self.settings.corruptions) - {CLEAN})
        archive_only = isinstance(self.dataset, ArchiveDataset)
        name = self.settings.dataset if archive_only else self.settings.archive
        return self.archive.metadata(corruptions) | {"name": name or str(self.archive.folder)}

    def _order(self, labels: Any) -> Indices:
        """Return the order of images with these labels."""
        order, seed, limit = self.settings.order, self.settings.seed, self.settings.limit
        concentration = self.settings.concentration
        return image_order(order, np.asarray(labels), seed=seed, limit=limit, concentration=concentration)

    def _make_segments(self) -> list[Segment]:
        settings = self.settings
        if self.sequences:
            rounds = range(settings.rounds if settings.schedule == "recurring" else 1)
            clean = (Domain(CLEAN),)
            return [
                Segment(Domain(name, 0, number), indices, clean, np.zeros(len(indices), np.int64))
                for number in rounds
                for name, indices in self.sequences.items()
            ]
        if settings.schedule == "single" and len(settings.corruptions) != 1:
            raise UsageError(
                f"schedule='single' needs exactly one corruption, found {len(settings.corruptions)}. "
                "Pass one, for example corruptions=['fog']."
            )
        domains = list_domains(settings.schedule, settings.corruptions, settings.severity, settings.rounds)
        if settings.schedule != "mixed":
            return [Segment(domain, self.indices) for domain in domains]
        generator = np.random.default_rng([settings.seed, 1])
        images = len(domains) * len(self.indices)
        positions = generator.permutation(settings.rounds * images) % images
        domain_of, image_of = np.divmod(positions, len(self.indices))
        return [Segment(Domain(MIXED, settings.severity), self.indices[image_of], tuple(domains), domain_of)]

    def _num_batches(self, segment: Segment) -> int:
        return -(-len(segment.indices) // self.settings.batch_size)

    def _reads(self, first: int) -> Iterator[Read]:
        """Yield what is read from batch ``first`` on; on a GPU, several batches are corrupted per call."""
        size = self.settings.batch_size
        for segment in self._segments:
            skipped = min(first, self._num_batches(segment))
            first -= skipped
            for start in range(skipped * size, len(segment.indices), self.batches_per_chunk * size):
                chunk = slice(start, start + self.batches_per_chunk * size)
                parts: list[tuple[Domain, Indices | slice]] = [(segment.domain, slice(None))]
                if segment.domain_of is not None:
                    domain_of = segment.domain_of[chunk]
                    parts = [
                        (segment.domains[number], np.flatnonzero(domain_of == number))
                        for number in np.unique(domain_of)
                    ]
                yield Read(segment.domain, start // size, segment.indices[chunk], parts)
