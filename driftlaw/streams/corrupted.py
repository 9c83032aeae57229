"""A labelled dataset as a drifting stream: which domain, which images, corrupted now or long ago."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator
from torch import Tensor

from driftlaw.base import Batch, Domain, Stream
from driftlaw.corruptions import list_corruptions
from driftlaw.datasets import ARCHIVES, Archive, ArchiveSource, ImageDataset, load_dataset, open_archive
from driftlaw.datasets.torch_dataset import as_image_dataset
from driftlaw.errors import UsageError, unknown
from driftlaw.settings import Settings, merge, parse, read_preset
from driftlaw.streams.image_cache import Pixels
from driftlaw.streams.ordering import image_order
from driftlaw.streams.schedules import CLEAN, MIXED, SCHEDULES

PIXELS_AT_ONCE = 2**24  # numbers corrupted in one go on a GPU, where a launch costs more than a pixel


class StreamSettings(Settings):
    """What a stream is made of."""

    dataset: str = "cifar10-embedded"
    """The clean images, as ``driftlaw list datasets`` names them; or corrupted ones alone: a name of ``driftlaw data
    list`` such as ``imagenet-c``, or ``archive:PATH``."""
    schedule: Literal["continual", "gradual", "reset", "mixed", "recurring", "single"] = "continual"
    """In which order domains come."""
    corruptions: tuple[str, ...] | Literal["benchmark", "held_out", "all"] = "benchmark"
    """Names, or a kind of them; ``clean`` stands for the images as they are."""
    severity: int = Field(default=5, ge=1, le=5)
    """1 to 5; the gradual schedule has its own."""
    rounds: PositiveInt = 1
    """How often a recurring schedule comes round."""
    order: Literal["shuffled", "as-is", "dirichlet"] = "shuffled"
    """In which order the images of a domain come; the same in every domain."""
    concentration: PositiveFloat = 0.1
    """Of the Dirichlet order; the smaller, the more a class comes all at once."""
    batch_size: PositiveInt = 200
    """Images a batch; the last batch of a domain may be smaller."""
    limit: PositiveInt | None = None
    """Images a domain; all of them where left out."""
    archive: str | None = None
    """A folder in CIFAR-10-C's or ImageNet-C's layout, or the name of one, to read corrupted images from; made on the
    fly where left out."""
    seed: NonNegativeInt = 1
    """Drives the order."""
    corruption_seed: int = 0
    """Drives the corruptions; image i gets the same one whatever the order and batch size."""

    @field_validator("corruptions", mode="before")
    @classmethod
    def _one_name(cls, value: Any) -> Any:
        """Take ``--set stream.corruptions=fog`` for a list of one."""
        return (value,) if isinstance(value, str) and value not in ("benchmark", "held_out", "all") else value

    @field_validator("corruptions")
    @classmethod
    def _known(cls, value: tuple[str, ...] | str) -> tuple[str, ...]:
        if isinstance(value, str):
            return tuple(list_corruptions(value))
        valid = [*list_corruptions("all"), CLEAN]
        problems = [str(unknown("corruption", name, valid)) for name in value if name not in valid]
        if problems or not value:
            raise UsageError("; ".join(problems) or "expected at least one corruption")
        return value


@dataclass(frozen=True)
class _Stretch:
    """A domain's unbroken stretch; ``domains`` is given where its images come from several (mixed)."""

    domain: Domain
    numbers: np.ndarray
    domains: tuple[Domain, ...] = ()
    domain_of: np.ndarray | None = None


class CorruptedStream(Stream):
    """Batches of a labelled dataset, domain after domain.

    Args:
        settings: what the stream is made of.
        pixels: the images, clean and corrupted.
    """

    def __init__(self, settings: StreamSettings, pixels: Pixels) -> None:
        self.settings, self.pixels = settings, pixels
        self.source, self.archive, self.device = pixels.source, pixels.archive, pixels.device
        source = pixels.source
        self.num_classes = source.num_classes
        self.numbers = image_order(
            settings.order,
            np.asarray(source.labels),
            seed=settings.seed,
            limit=settings.limit,
            concentration=settings.concentration,
        )
        if len(self.numbers) == 0:
            raise UsageError(f"the dataset {source.name} holds no image: give a folder with pictures in it")
        self._stretches = self._plan()
        a_batch = settings.batch_size * int(np.prod(pixels.shape))
        self.batches_at_once = max(PIXELS_AT_ONCE // a_batch, 1) if self.device.type == "cuda" else 1

    @property
    def reset_on(self) -> Literal["never", "domain"]:
        """When the protocol takes an adapter back to the source."""
        return "domain" if self.settings.schedule == "reset" else "never"

    def __len__(self) -> int:
        return sum(self._batches_of(stretch) for stretch in self._stretches)

    def __iter__(self) -> Iterator[Batch]:
        return self.iter_from(0)

    def iter_from(self, first: int) -> Iterator[Batch]:
        """Iterate from batch ``first`` on; what comes before is never made."""
        index = 0
        for stretch in self._stretches:
            skipped = min(max(first - index, 0), self._batches_of(stretch))
            index += skipped
            for number, (images, labels) in enumerate(self._arrivals(stretch, skipped), start=skipped):
                yield Batch(images, labels, stretch.domain, index, starts_domain=number == 0)
                index += 1

    def clean(self, limit: int | None = None) -> CorruptedStream:
        """Return a stream of the same images as they are, shuffled, in batches as large; at most ``limit`` of them."""
        if isinstance(self.source, ArchiveSource):
            raise UsageError(
                f"«{self.source.name}» holds no clean images: name the dataset it was made from, and this as archive"
            )
        at_most = min(len(self.numbers), limit or len(self.numbers))
        changes = {"schedule": "continual", "corruptions": (CLEAN,), "order": "shuffled", "limit": at_most}
        return CorruptedStream(self.settings.model_copy(update=changes), self.pixels)

    def recipe(self) -> dict[str, Any]:
        """Return the settings, what is known of the data, and how the images were corrupted."""
        facts = {
            "dataset": self.source.facts(),
            "images_per_domain": len(self.numbers),
            "pixels": "generated" if self.archive is None else "archive",
        }
        if self.archive is not None:
            facts["archive"] = self._archive_facts
        return self.settings.model_dump(mode="json") | facts

    @cached_property
    def _archive_facts(self) -> dict[str, Any]:
        """What is known of the files that are read, found by the name they were asked for; hashing them takes long."""
        assert self.archive is not None
        names = sorted(set(self.settings.corruptions) - {CLEAN})
        alone = isinstance(self.source, ArchiveSource)
        asked_for = self.settings.dataset if alone else self.settings.archive
        return self.archive.facts(names) | {"name": asked_for or str(self.archive.folder)}

    def _plan(self) -> list[_Stretch]:
        settings = self.settings
        if settings.schedule == "single" and len(settings.corruptions) != 1:
            raise UsageError(f"a single schedule takes one corruption, found {len(settings.corruptions)}: name one")
        domains = SCHEDULES[settings.schedule](settings.corruptions, settings.severity, settings.rounds)
        if settings.schedule == "mixed":
            return [self._mixed(domains)]
        return [_Stretch(domain, self.numbers) for domain in domains]

    def _mixed(self, domains: list[Domain]) -> _Stretch:
        """Shuffle the images of all domains into one stretch."""
        generator = np.random.default_rng([self.settings.seed, 1])
        places = generator.permutation(len(domains) * len(self.numbers))
        domain_of, which = np.divmod(places, len(self.numbers))
        return _Stretch(Domain(MIXED, self.settings.severity), self.numbers[which], tuple(domains), domain_of)

    def _batches_of(self, stretch: _Stretch) -> int:
        return -(-len(stretch.numbers) // self.settings.batch_size)

    def _arrivals(self, stretch: _Stretch, skipped: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the batches of a stretch; several are corrupted at once where that is cheaper."""
        size = self.settings.batch_size
        at_once = self.batches_at_once
        for start in range(skipped * size, len(stretch.numbers), at_once * size):
            chosen = slice(start, start + at_once * size)
            pixels = self._pixels_of(stretch, chosen)
            labels = torch.from_numpy(np.asarray(self.source.labels)[stretch.numbers[chosen]]).to(self.device)
            for images, truth in zip(pixels.split(size), labels.split(size), strict=True):
                yield images.to(torch.float32).div(255), truth

    def _pixels_of(self, stretch: _Stretch, chosen: slice) -> Tensor:
        numbers = stretch.numbers[chosen]
        if stretch.domain_of is None:
            return self.pixels.of(stretch.domain, numbers)
        domain_of = stretch.domain_of[chosen]
        pixels = torch.empty(len(numbers), *self.pixels.shape, dtype=torch.uint8, device=self.device)
        for position in np.unique(domain_of):
            here = np.flatnonzero(domain_of == position)
            pixels[torch.from_numpy(here).to(self.device)] = self.pixels.of(stretch.domains[position], numbers[here])
        return pixels


_DERIVED = ("images_per_domain", "pixels")
_FOR_METHODS = "source"  # a preset's word to `driftlaw run`: whose training data methods get that need it
_ARCHIVE_PREFIX = "archive:"


def make_stream(
    preset_or_recipe: str | Mapping[str, Any] | StreamSettings,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    device: torch.device | str = "cpu",
    like: CorruptedStream | None = None,
    source: Any = None,
    **changes: Any,
) -> CorruptedStream:
    """Return a stream from a preset's name, a table of settings, or what a stream's ``recipe()`` returned.

    Args:
        preset_or_recipe: such as ``"embedded"`` or ``{"dataset": "cifar10", "severity": 3}``.
        data_dir: where the data lies, where it is not the default folder.
        device: where images are corrupted and handed out.
        like: a stream of the same images in another order, to share their memory with.
        source: the clean images, in place of a dataset's name: a torch ``Dataset`` of (image, label), or anything
            with the face of ``driftlaw.datasets.ImageDataset``.
        **changes: settings to change, such as ``limit=400``.
    """
    settings = _settings_of(preset_or_recipe, changes)
    if like is not None and like.device == torch.device(device) and _same_images(like, settings, source):
        return CorruptedStream(settings.model_copy(update={"dataset": like.settings.dataset}), like.pixels)
    given = None if source is None else as_image_dataset(source)
    if given is not None:
        settings = settings.model_copy(update={"dataset": given.name})
    clean, archive = _opened(settings, data_dir, given)
    if archive is not None:
        _check_archive(archive, clean, settings)
    return CorruptedStream(settings, Pixels(clean, archive, settings.corruption_seed, device, given=source))


def _opened(
    settings: StreamSettings, data_dir: str | os.PathLike[str] | None, given: ImageDataset | None
) -> tuple[ImageDataset, Archive | None]:
    """Return the clean images and the archive of a stream; where its dataset is an archive, that stands for both."""
    name = settings.dataset
    if given is None and (name in ARCHIVES or name.startswith(_ARCHIVE_PREFIX)):
        if settings.archive not in (None, name):  # a recipe names it twice
            raise UsageError(f"«{name}» is an archive itself: leave out archive = {settings.archive!r}")
        alone = open_archive(name.removeprefix(_ARCHIVE_PREFIX), data_dir=data_dir)
        if CLEAN in settings.corruptions:
            raise UsageError(f"«{name}» holds no clean images: name the dataset it was made from, and this as archive")
        return ArchiveSource(name, alone), alone
    archive = open_archive(settings.archive, data_dir=data_dir) if settings.archive else None
    return given if given is not None else load_dataset(name, data_dir=data_dir, split="test"), archive


def _same_images(like: CorruptedStream, settings: StreamSettings, given: Any) -> bool:
    names = ["archive", "corruption_seed", "corruptions"] + (["dataset"] if given is None else [])
    same = all(getattr(like.settings, name) == getattr(settings, name) for name in names)
    return same and like.pixels.given is given


def _settings_of(given: str | Mapping[str, Any] | StreamSettings, changes: Mapping[str, Any]) -> StreamSettings:
    if not isinstance(given, str | Mapping | StreamSettings):
        raise UsageError(
            f"a stream is made from the name of a preset or from settings, not from a {type(given).__name__}; images "
            'of your own: make_stream("embedded", source=dataset)'
        )
    if isinstance(given, StreamSettings):
        values: Mapping[str, Any] = given.model_dump()
    else:
        table = read_preset(given).get("stream", {}) if isinstance(given, str) else given
        values = {key: value for key, value in table.items() if key not in (*_DERIVED, _FOR_METHODS)}
        for key in ("dataset", "archive"):
            if isinstance(values.get(key), Mapping):
                values[key] = values[key]["name"]
    return parse(StreamSettings, merge(values, changes), where="the stream")


def _check_archive(archive: Archive, source: ImageDataset, settings: StreamSettings) -> None:
    if len(archive.labels) != len(source) or not np.array_equal(archive.labels, source.labels):
        raise UsageError(
            f"the archive {settings.archive} ({len(archive.labels)} images a severity) does not go with the dataset "
            f"{source.name} ({len(source)} images), or their labels differ: give the one it was made from"
        )
    missing = [name for name in settings.corruptions if name not in (CLEAN, *archive.corruptions())]
    if missing:
        raise UsageError(
            f"the archive {settings.archive} has no {', '.join(missing)}: put the files there, or take of its "
            f"corruptions {', '.join(archive.corruptions())}"
        )
