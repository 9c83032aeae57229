"""make_stream: streams from presets, folders, datasets and loaders."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset

from driftlaw._deprecated import renamed_keywords
from driftlaw.base import Stream
from driftlaw.corruptions import list_corruptions
from driftlaw.datasets import ARCHIVES, REQUIRED_ATTRIBUTES, SHARDS_PREFIX, ArchiveDataset, load_dataset, open_archive
from driftlaw.datasets.folder_archive import corruptions_in
from driftlaw.datasets.shards import SEPARATOR, is_shards
from driftlaw.datasets.torch_dataset import as_image_dataset
from driftlaw.errors import UsageError
from driftlaw.hardware import pick_device
from driftlaw.settings import list_presets, merge, parse, read_preset
from driftlaw.streams.corrupted import CorruptedStream
from driftlaw.streams.image_cache import CorruptedImageCache
from driftlaw.streams.loader import LOADER, LoaderStream, batch_sha256, collate, split_batch
from driftlaw.streams.ordering import image_order
from driftlaw.streams.schedules import CLEAN
from driftlaw.streams.settings import StreamSettings

OWN_DATA: dict[str, Any] = {"corruptions": [CLEAN], "batch_size": 64}
"""Settings of streams from folders and datasets, if not given."""
_DERIVED_KEYS = ("images_per_domain", "pixels", "frost_photographs")
_TRAIN_DATA_KEYS = ("source", "train_data")  # of a preset, read by `driftlaw run`
_ARCHIVE_PREFIX = "archive:"
MAX_WORKERS = 256


@overload
def make_stream(
    data: str | os.PathLike[str] | Mapping[str, Any] | StreamSettings,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    device: torch.device | str = "cpu",
    like: CorruptedStream | None = None,
    dataset: Any = None,
    workers: int = 0,
    **changes: Any,
) -> CorruptedStream: ...
@overload
def make_stream(data: Any, **changes: Any) -> Stream: ...
@renamed_keywords(source="dataset", preset_or_recipe="data")
def make_stream(
    data: Any,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    device: torch.device | str = "cpu",
    like: CorruptedStream | None = None,
    dataset: Any = None,
    workers: int = 0,
    **changes: Any,
) -> Stream:
    """Return a stream from a preset, a folder, shards, a dataset, a DataLoader, or any iterable of batches.

    >>> stream = make_stream("embedded", corruptions=["fog", "snow"], limit=400)
    >>> [batch.domain.name for batch in stream]
    ['fog', 'fog', 'snow', 'snow']
    >>> images, labels = torch.rand(10, 3, 8, 8), torch.arange(10)
    >>> make_stream(torch.utils.data.TensorDataset(images, labels), batch_size=5)
    <LoaderStream: TensorDataset, 2 batches of 5>

    Images of loaders, and of datasets without ``corruptions``, are passed on unchanged: normalised or not, floats or
    uint8. Folders, and datasets with ``corruptions``, give floats in [0, 1] from 8-bit pixels.

    Args:
        data: One of these:

            - a preset such as ``"embedded"``, a mapping of settings such as ``{"dataset": "cifar10", "severity": 3}``,
              or the ``recipe()`` of another stream;
            - a folder of images. Class sub-folders give labels. Without sub-folders there are no labels, and the order
              is that of the file names. In the layout of ImageNet-C, its corruptions are the domains;
            - shards in the WebDataset format: ``"shards/{000..049}.tar"``, a list of them, or addresses of fsspec such
              as ``"s3://bucket/{000..049}.tar"``. Their order is kept, if not ``order="shuffled"``;
            - a torch ``Dataset`` of images, (image, label) or dicts. It is shuffled with ``seed``, if not
              ``order="as-is"``. ``corruptions=["fog"]`` corrupts it on the fly. ``["clean"]`` stands for no corruption;
            - a DataLoader or another iterable of (images, labels), (images,), images, or dicts with images and labels.
              Its order and batch size are not changed. An iterator, such as a generator, can be used for one run, which
              cannot be resumed.
        data_dir: Data directory; see ``driftlaw.paths.data_dir``.
        device: Where images are corrupted and returned. The batches of a loader stay where they are.
        like: A stream of the same images in another order; its image cache is shared.
        dataset: The clean images for a preset: a name (as in the settings), a torch ``Dataset`` of (image, label), or
            an object that implements ``driftlaw.datasets.ImageDataset``.
        workers: Number of processes that read images in advance, for presets, folders, shards and datasets with
            ``corruptions``. The batches are the same with any number. Each process holds at most two batches.
        **changes: Settings of ``StreamSettings`` to change, for example ``limit=400``. For folders, shards and
            datasets ``batch_size`` is 64 and ``corruptions`` is ``["clean"]`` if not given.

    Raises:
        UsageError: Settings are invalid, or archive and dataset do not belong together.
        DataError: Data is missing or damaged.
    """
    if not isinstance(like, CorruptedStream | None):
        raise UsageError(f"like is of type {type(like).__name__}. Expected a stream of make_stream, or None.")
    if isinstance(data, Stream):
        return data
    device = device if isinstance(device, torch.device) else pick_device(device)
    if isinstance(workers, bool) or not isinstance(workers, int) or not 0 <= workers <= MAX_WORKERS:
        raise UsageError(f"workers is {workers!r}. Expected an integer from 0 to {MAX_WORKERS}.")
    if isinstance(data, list | tuple) and data and all(isinstance(item, str | os.PathLike) for item in data):
        data = {**OWN_DATA, "dataset": SHARDS_PREFIX + SEPARATOR.join(map(os.fspath, data))}
    elif isinstance(data, str | os.PathLike):
        data = os.fspath(data)
        is_preset = data in list_presets() or data.endswith(".toml")
        is_folder = data.endswith(("/", os.sep)) or (not is_preset and os.path.isdir(os.path.expanduser(data)))
        if is_folder or is_shards(data):
            data = own_data_settings(data)
    elif not isinstance(data, Mapping | StreamSettings):
        is_image_dataset = all(hasattr(data, name) for name in REQUIRED_ATTRIBUTES)
        if isinstance(data, DataLoader) or not (is_image_dataset or "corruptions" in changes):
            if workers:
                raise UsageError(
                    f"workers cannot be set for a {type(data).__name__}. Pass a DataLoader with num_workers={workers}."
                )
            return _loader_stream(data, changes)
        data, dataset = OWN_DATA, data
    given = None if isinstance(dataset, str) else dataset
    if isinstance(dataset, str):
        changes["dataset"] = dataset
    settings = _parse_settings(data, changes)
    shared = ["archive", "corruption_seed", "corruptions", "encoding", "size"] + (["dataset"] if given is None else [])
    if (
        like is not None
        and like.device == device
        and like.cache.given is given
        and all(getattr(like.settings, name) == getattr(settings, name) for name in shared)
    ):
        return CorruptedStream(settings.model_copy(update={"dataset": like.settings.dataset}), like.cache, workers)
    clean, archive = None if given is None else as_image_dataset(given), None
    if clean is not None:
        if settings.size is not None:
            raise UsageError(f"size={settings.size} is for datasets by name. Resize the images of your own dataset.")
        settings = settings.model_copy(update={"dataset": clean.name})
    name = settings.dataset
    if clean is None and (name in ARCHIVES or name.startswith(_ARCHIVE_PREFIX)):
        if settings.archive not in (None, name):  # a recipe contains the name twice
            raise UsageError(f"dataset='{name}' is an archive. Remove archive={settings.archive!r}.")
        archive = open_archive(name.removeprefix(_ARCHIVE_PREFIX), data_dir=data_dir)
        clean = ArchiveDataset(name, archive)
    elif settings.archive:
        archive = open_archive(settings.archive, data_dir=data_dir)
    clean = load_dataset(name, data_dir=data_dir, split="test", size=settings.size) if clean is None else clean
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
    cache = CorruptedImageCache(
        clean, archive, settings.corruption_seed, device, given=given, encoding=settings.encoding
    )
    return CorruptedStream(settings, cache, workers)


def own_data_settings(data: str) -> dict[str, Any]:
    """Return the settings of a stream from shards, a folder in the layout of ImageNet-C, or another folder."""
    if is_shards(data):
        return {**OWN_DATA, "dataset": f"{SHARDS_PREFIX}{data}"}
    found = corruptions_in(Path(data).expanduser())
    if names := [name for name in list_corruptions("all") if name in found]:
        return {**OWN_DATA, "dataset": f"{_ARCHIVE_PREFIX}{Path(data)}", "corruptions": names}
    return {**OWN_DATA, "dataset": f"folder:{Path(data)}"}


def _loader_stream(data: Any, changes: Mapping[str, Any]) -> LoaderStream:
    """Return a stream of the batches of a loader, or of a dataset without corruption."""
    is_iterable = isinstance(data, IterableDataset)
    is_dataset = is_iterable or (hasattr(data, "__getitem__") and hasattr(data, "__len__"))
    if isinstance(data, list | tuple | torch.Tensor | np.ndarray) or not is_dataset:
        if changes:
            raise UsageError(
                f"{', '.join(changes)} cannot be set for a {type(data).__name__}, because it makes its own batches. "
                "Change the loader, or pass its dataset instead."
            )
        return LoaderStream(data)
    valid = ["batch_size"] if is_iterable else ["batch_size", "limit", "order", "seed"]
    others = [name for name in changes if name not in valid]
    if others or changes.get("order") == "dirichlet":
        raise UsageError(
            f"{', '.join(others) or 'order=dirichlet'} cannot be set for a {type(data).__name__} without corruptions. "
            f"Valid settings are {', '.join(valid)}. For the others, pass corruptions=['clean'] as well."
        )
    settings = parse(StreamSettings, OWN_DATA | dict(changes), where="the stream")
    if is_iterable:
        return LoaderStream(DataLoader(data, settings.batch_size, collate_fn=collate))
    if len(data) == 0:
        raise UsageError(f"The dataset ({type(data).__name__}) is empty.")
    no_labels = np.zeros(len(data), np.int64)
    order = image_order(settings.order, no_labels, seed=settings.seed, limit=settings.limit, concentration=1.0)
    loader = DataLoader(data, settings.batch_size, sampler=order.tolist(), collate_fn=collate)
    described = {name: getattr(settings, name) for name in ("order", "seed", "limit")}
    # Not of the first batch, which depends on the seed.
    described["first_item_sha256"] = batch_sha256(*split_batch(collate([data[0]]), 0))
    return LoaderStream(loader, described)


def _parse_settings(given: str | Mapping[str, Any] | StreamSettings, changes: Mapping[str, Any]) -> StreamSettings:
    if isinstance(given, StreamSettings):
        values: dict[str, Any] = given.model_dump()
    else:
        table = read_preset(given).get("stream", {}) if isinstance(given, str) else given
        values = {key: value for key, value in table.items() if key not in (*_DERIVED_KEYS, *_TRAIN_DATA_KEYS)}
        for key in ("dataset", "archive"):
            if isinstance(values.get(key), Mapping) and "name" in values[key]:
                values[key] = values[key]["name"]
        if "pixels" in table and list(table.get("corruptions", ())) != [CLEAN]:
            values.setdefault("encoding", "none")  # recipes of versions that did not encode images
        if values.get("schedule") == LOADER:
            raise UsageError("A loader cannot be rebuilt from the recipe of its stream. Pass the loader.")
    return parse(StreamSettings, merge(values, changes), where="the stream")
