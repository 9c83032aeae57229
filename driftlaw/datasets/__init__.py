"""Clean labelled images: found, fetched, verified, read. Loading never downloads."""

from __future__ import annotations

import os
from pathlib import Path

from driftlaw import paths as places
from driftlaw.datasets.archives import (
    ARCHIVES,
    Archive,
    ArchiveInfo,
    ArchiveSource,
    ArchiveWriter,
    CorruptedArchive,
    open_archive,
)
from driftlaw.datasets.cifar import find_batches, read_batches, read_class_names
from driftlaw.datasets.embedded import read_embedded
from driftlaw.datasets.folder_archive import FolderArchive
from driftlaw.datasets.image_folder import FolderImages, open_folder
from driftlaw.datasets.imagenet import CLASSES as IMAGENET_CLASSES
from driftlaw.datasets.imagenet import find_imagenet
from driftlaw.datasets.mosaics import find_mosaics, read_mosaics
from driftlaw.datasets.protocol import ArrayImages, ImageDataset, content_sha256
from driftlaw.datasets.registry import CATALOGUE, EMBEDDED, DatasetInfo
from driftlaw.errors import DataError, unknown, warn_user

__all__ = [
    "ARCHIVES",
    "Archive",
    "ArchiveInfo",
    "ArchiveSource",
    "ArchiveWriter",
    "ArrayImages",
    "CorruptedArchive",
    "DatasetInfo",
    "FolderArchive",
    "FolderImages",
    "ImageDataset",
    "content_sha256",
    "dataset_info",
    "list_datasets",
    "load_dataset",
    "open_archive",
]

_FOLDER_PREFIX = "folder:"


def list_datasets() -> list[DatasetInfo]:
    """Return what is known of every dataset that ``load_dataset`` takes."""
    return list(CATALOGUE.values())


def dataset_info(name: str) -> DatasetInfo:
    """Return what is known of one dataset, or raise with the nearest valid name."""
    if name.startswith(_FOLDER_PREFIX):
        return CATALOGUE["folder:PATH"]
    if name not in CATALOGUE:
        raise unknown("dataset", name, list(CATALOGUE))
    return CATALOGUE[name]


def load_dataset(
    name: str, *, data_dir: str | os.PathLike[str] | None = None, split: str = "test"
) -> ArrayImages | FolderImages:
    """Return the images of a dataset that lies on this machine.

    Args:
        name: ``cifar10-embedded``, ``cifar10``, ``cifar100``, ``imagenet`` or ``folder:PATH`` (one sub-folder a class).
        data_dir: where to look; see ``driftlaw.paths.data_dir``.
        split: ``test`` or ``train``, as far as the dataset has it.

    Raises:
        UsageError: there is no such dataset or split.
        DataError: it is not on this machine, or damaged; the message says what to do.
    """
    info = dataset_info(name)
    if split not in info.splits:
        raise unknown(f"split of {name}", split, list(info.splits))
    if name.startswith(_FOLDER_PREFIX):
        return open_folder(name.removeprefix(_FOLDER_PREFIX), split)
    if info is EMBEDDED:
        return read_embedded()
    folder = places.data_dir(data_dir)
    return _load_imagenet(folder, split) if info.in_class_folders else _load_cifar(info, folder, split)


def _load_imagenet(folder: Path, split: str) -> FolderImages:
    found = find_imagenet(folder, split)
    if found is None:
        place = "train" if split == "train" else "val"
        raise DataError(
            f"imagenet ({split}) is not under {folder}: put its {IMAGENET_CLASSES} class folders (by wnid such as "
            f"n01440764, or by number such as 0000) into {folder / 'imagenet' / place}"
        )
    what = "ImageNet training images" if split == "train" else "ImageNet validation images"
    return FolderImages(found, split=split, name="imagenet", what=what)


def _load_cifar(info: DatasetInfo, folder: Path, split: str) -> ArrayImages:
    layout = info.layout
    assert layout is not None  # every catalogue entry but those above has one
    if (found := find_batches(layout, folder, split)) is not None:
        images, labels = read_batches(layout, found, split)
        names = read_class_names(layout, found) or list(info.class_names)
        digest = content_sha256(images, labels)
        as_published = info.published[split].difference(found, len(labels), digest) is None
        origin = info.origin if as_published else f"in the layout of {info.name}, but not its published content"
    elif info.mosaic and (found := find_mosaics(info.mosaic, folder, split)) is not None:
        images, labels, names = read_mosaics(info.mosaic, found, split)
        digest = content_sha256(images, labels)
        as_published = digest == info.mosaic.sha256[split]
        origin = info.mosaic.origin if as_published else "mosaics of a split that is not known here"
    else:
        raise DataError(
            f"{info.name} ({split}) is not under {folder}: run `driftlaw data get {info.name}`, or put the official "
            f"files {', '.join(layout.files[split])} into {folder / layout.folder}"
        )
    if not as_published:
        warn_user(f"{found} ({split}, {len(labels)} images) is {origin}")
    return ArrayImages(info.name, images, labels, names, {"split": split, "origin": origin, "sha256": digest})
