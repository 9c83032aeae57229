"""Streams of corrupted images: a labelled dataset, domain after domain, in a fixed order."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from driftlaw._deprecated import renamed_keywords
from driftlaw.base import Batch, Domain, Stream
from driftlaw.datasets import ARCHIVES, ArchiveDataset, load_dataset, open_archive
from driftlaw.datasets.torch_dataset import as_image_dataset
from driftlaw.errors import UsageError
from driftlaw.settings import merge, parse, read_preset
from driftlaw.streams.image_cache import CorruptedImageCache
from driftlaw.streams.ordering import Indices, image_order
from driftlaw.streams.schedules import CLEAN, MIXED, list_domains
from driftlaw.streams.settings import StreamSettings

GPU_CHUNK_VALUES = 2**24  # pixel values corrupted per call on a GPU, where launch overhead dominates small batches
_DERIVED_KEYS = ("images_per_domain", "pixels")
_TRAIN_DATA_KEYS = ("source", "train_data")  # of a preset, read by `driftlaw run`
_ARCHIVE_PREFIX = "archive:"


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
    """

    def __init__(self, settings: StreamSettings, cache: CorruptedImageCache) -> None:
        self.settings, self.cache = settings, cache
        self.dataset, self.archive, self.device = cache.dataset, cache.archive, cache.device
        self.num_classes = self.dataset.num_classes
        if isinstance(self.dataset, ArchiveDataset) and CLEAN in settings.corruptions:
            name = self.dataset.name
            raise UsageError(
                f"'{name}' is an archive of corrupted images and has no clean images. Pass the dataset it was made "
                f"from as dataset, and '{name}' as archive."
            )
        self.indices = image_order(
            settings.order,
            np.asarray(self.dataset.labels),
            seed=settings.seed,
            limit=settings.limit,
            concentration=settings.concentration,
        )
        if len(self.indices) == 0:
            raise UsageError(f"The dataset {self.dataset.name} contains no images. Use a dataset with images.")
        self._segments = self._make_segments()
        values_per_batch = settings.batch_size * int(np.prod(cache.shape))
        self.batches_per_chunk = max(GPU_CHUNK_VALUES // values_per_batch, 1) if self.device.type == "cuda" else 1

    @property
    def reset_on(self) -> Literal["never", "domain"]:
        """When the evaluator resets the adapter to the source model."""
        return "domain" if self.settings.schedule == "reset" else "never"

    def __len__(self) -> int:
        return sum(self._num_batches(segment) for segment in self._segments)

    def __iter__(self) -> Iterator[Batch]:
        return self.iter_from(0)

    def iter_from(self, first: int) -> Iterator[Batch]:
        """Iterate from batch ``first``; images of earlier batches are not computed."""
        index = 0
        for segment in self._segments:
            skipped = min(max(first - index, 0), self._num_batches(segment))
            index += skipped
            for number, (images, labels) in enumerate(self._segment_batches(segment, skipped), start=skipped):
                yield Batch(images, labels, segment.domain, index, starts_domain=number == 0)
                index += 1

    def clean(self, limit: int | None = None) -> CorruptedStream:
        """Return a stream of the same images without corruption, shuffled, with at most ``limit`` images."""
        count = min(len(self.indices), limit or len(self.indices))
        changes = {"schedule": "continual", "corruptions": (CLEAN,), "order": "shuffled", "limit": count}
        return CorruptedStream(self.settings.model_copy(update=changes), self.cache)

    def recipe(self) -> dict[str, Any]:
        """Return a JSON description of settings and data, from which ``make_stream`` rebuilds the stream."""
        derived = {
            "dataset": self.dataset.metadata(),
            "images_per_domain": len(self.indices),
            "pixels": "generated" if self.archive is None else "archive",
        }
        if self.archive is not None:
            derived["archive"] = self._archive_metadata
        return self.settings.model_dump(mode="json") | derived

    @cached_property
    def _archive_metadata(self) -> dict[str, Any]:
        """Metadata of the archive files in use, under the name the caller used. Hashing the files can be slow."""
        assert self.archive is not None
        corruptions = sorted(set(self.settings.corruptions) - {CLEAN})
        archive_only = isinstance(self.dataset, ArchiveDataset)
        name = self.settings.dataset if archive_only else self.settings.archive
        return self.archive.metadata(corruptions) | {"name": name or str(self.archive.folder)}

    def _make_segments(self) -> list[Segment]:
        settings = self.settings
        if settings.schedule == "single" and len(settings.corruptions) != 1:
            raise UsageError(
                f"schedule='single' needs exactly one corruption, found {len(settings.corruptions)}. "
                "Pass one, for example corruptions=['fog']."
            )
        domains = list_domains(settings.schedule, settings.corruptions, settings.severity, settings.rounds)
        if settings.schedule != "mixed":
            return [Segment(domain, self.indices) for domain in domains]
        generator = np.random.default_rng([settings.seed, 1])
        positions = generator.permutation(len(domains) * len(self.indices))
        domain_of, image_of = np.divmod(positions, len(self.indices))
        return [Segment(Domain(MIXED, settings.severity), self.indices[image_of], tuple(domains), domain_of)]

    def _num_batches(self, segment: Segment) -> int:
        return -(-len(segment.indices) // self.settings.batch_size)

    def _segment_batches(self, segment: Segment, skipped: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield images and labels of the batches of a segment; on a GPU, several batches are corrupted per call."""
        size = self.settings.batch_size
        chunk_size = self.batches_per_chunk * size
        for start in range(skipped * size, len(segment.indices), chunk_size):
            chunk = slice(start, start + chunk_size)
            pixels = self._chunk_pixels(segment, chunk)
            labels = torch.from_numpy(np.asarray(self.dataset.labels)[segment.indices[chunk]]).to(self.device)
            for batch, batch_labels in zip(torch.split(pixels, size), torch.split(labels, size), strict=True):
                yield batch.to(torch.float32).div(255), batch_labels

    def _chunk_pixels(self, segment: Segment, chunk: slice) -> Tensor:
        indices = segment.indices[chunk]
        if segment.domain_of is None:
            return self.cache.get(segment.domain, indices)
        domain_of = segment.domain_of[chunk]
        pixels = torch.empty(len(indices), *self.cache.shape, dtype=torch.uint8, device=self.device)
        for number in np.unique(domain_of):
            rows = np.flatnonzero(domain_of == number)
            pixels[torch.from_numpy(rows).to(self.device)] = self.cache.get(segment.domains[number], indices[rows])
        return pixels


@renamed_keywords(source="dataset")
def make_stream(
    preset_or_recipe: str | Mapping[str, Any] | StreamSettings,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    device: torch.device | str = "cpu",
    like: CorruptedStream | None = None,
    dataset: Any = None,
    **changes: Any,
) -> CorruptedStream:
    """Return a stream from a preset, a mapping of settings, or the ``recipe()`` of another stream.

    >>> stream = make_stream("embedded", corruptions=["fog", "snow"], limit=400)
    >>> [batch.domain.name for batch in stream]
    ['fog', 'fog', 'snow', 'snow']

    Args:
        preset_or_recipe: For example ``"embedded"`` or ``{"dataset": "cifar10", "severity": 3}``.
        data_dir: Data directory; see ``driftlaw.paths.data_dir``.
        device: Where images are corrupted and returned.
        like: A stream of the same images in another order; its image cache is shared.
        dataset: The clean images: a name (as in the settings), a torch ``Dataset`` of (image, label), or an object that
            implements ``driftlaw.datasets.ImageDataset``.
        **changes: Settings to change, for example ``limit=400``.

    Raises:
        UsageError: Settings are invalid, or archive and dataset do not belong together.
        DataError: Data is missing or damaged.
    """
    given = None if isinstance(dataset, str) else dataset
    if isinstance(dataset, str):
        changes["dataset"] = dataset
    settings = _parse_settings(preset_or_recipe, changes)
    shared = ["archive", "corruption_seed", "corruptions"] + (["dataset"] if given is None else [])
    if (
        like is not None
        and like.device == torch.device(device)
        and like.cache.given is given
        and all(getattr(like.settings, name) == getattr(settings, name) for name in shared)
    ):
        return CorruptedStream(settings.model_copy(update={"dataset": like.settings.dataset}), like.cache)
    clean, archive = None if given is None else as_image_dataset(given), None
    if clean is not None:
        settings = settings.model_copy(update={"dataset": clean.name})
    name = settings.dataset
    if clean is None and (name in ARCHIVES or name.startswith(_ARCHIVE_PREFIX)):
        if settings.archive not in (None, name):  # a recipe contains the name twice
            raise UsageError(f"dataset='{name}' is an archive. Remove archive={settings.archive!r}.")
        archive = open_archive(name.removeprefix(_ARCHIVE_PREFIX), data_dir=data_dir)
        clean = ArchiveDataset(name, archive)
    elif settings.archive:
        archive = open_archive(settings.archive, data_dir=data_dir)
    clean = load_dataset(name, data_dir=data_dir, split="test") if clean is None else clean
    if archive is not None:
        if not np.array_equal(archive.labels, clean.labels):
            raise UsageError(
                f"The archive {settings.archive} ({len(archive)} images per severity) and the dataset {clean.name} "
                f"({len(clean)} images) have different labels. Use the dataset it was made from."
            )
        available = archive.corruptions()
        missing = [name for name in settings.corruptions if name not in (CLEAN, *available)]
        if missing:
            raise UsageError(
                f"The archive {settings.archive} does not contain {', '.join(missing)}. Add the files, or use its "
                f"corruptions: {', '.join(available)}."
            )
    return CorruptedStream(settings, CorruptedImageCache(clean, archive, settings.corruption_seed, device, given=given))


def _parse_settings(given: str | Mapping[str, Any] | StreamSettings, changes: Mapping[str, Any]) -> StreamSettings:
    if not isinstance(given, str | Mapping | StreamSettings):
        raise UsageError(
            f"The first argument is a {type(given).__name__}; expected the name of a preset or settings. To use your "
            'own images, write make_stream("embedded", dataset=dataset).'
        )
    if isinstance(given, StreamSettings):
        values: dict[str, Any] = given.model_dump()
    else:
        table = read_preset(given).get("stream", {}) if isinstance(given, str) else given
        values = {key: value for key, value in table.items() if key not in (*_DERIVED_KEYS, *_TRAIN_DATA_KEYS)}
        for key in ("dataset", "archive"):
            if isinstance(values.get(key), Mapping):
                values[key] = values[key]["name"]
    return parse(StreamSettings, merge(values, changes), where="the stream")
