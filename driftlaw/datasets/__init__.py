"""Clean labelled images and archives of corrupted images: find, download, verify, read. Loading never downloads."""

import os
from pathlib import Path

from driftlaw import paths
from driftlaw._deprecated import add_old_names
from driftlaw.datasets.archives import Archive, ArchiveDataset, CorruptedArchive, open_archive
from driftlaw.datasets.cifar import read_batches, read_class_names
from driftlaw.datasets.embedded import NAME as EMBEDDED
from driftlaw.datasets.embedded import read_embedded
from driftlaw.datasets.folder_archive import FolderArchive
from driftlaw.datasets.image_folder import FolderImages, open_folder
from driftlaw.datasets.label_maps import LabelMapImages
from driftlaw.datasets.protocol import REQUIRED_ATTRIBUTES, ArrayImages, ImageDataset, content_sha256
from driftlaw.datasets.registry import ARCHIVES, DATASETS, ArchiveInfo, DatasetInfo
from driftlaw.datasets.segmentation import load_label_maps, open_label_folder
from driftlaw.datasets.shapes import NAME as SHAPES
from driftlaw.datasets.shapes import ArrayLabelMaps, generate_shapes
from driftlaw.datasets.shards import ShardImages
from driftlaw.errors import DataError, UsageError, unknown_name, warn_user

__all__ = [
    "ARCHIVES",
    "REQUIRED_ATTRIBUTES",
    "SHARDS_PREFIX",
    "Archive",
    "ArchiveDataset",
    "ArchiveInfo",
    "ArrayImages",
    "CorruptedArchive",
    "DatasetInfo",
    "FolderArchive",
    "FolderImages",
    "ImageDataset",
    "LabelMapImages",
    "ShardImages",
    "content_sha256",
    "dataset_info",
    "list_datasets",
    "load_dataset",
    "open_archive",
]

_FOLDER_PREFIX = "folder:"
SHARDS_PREFIX = "shards:"


def list_datasets() -> list[DatasetInfo]:
    """Return descriptions of all datasets that ``load_dataset`` can load.

    >>> [info.name for info in list_datasets()][:6]
    ['cifar10-embedded', 'cifar10', 'cifar100', 'imagenet', 'shapes', 'camvid']
    """
    return list(DATASETS.values())


def dataset_info(name: str) -> DatasetInfo:
    """Return the description of one dataset; raise ``UsageError`` with the nearest valid name if it is unknown."""
    if name.startswith(_FOLDER_PREFIX):
        return DATASETS["folder:PATH"]
    if name.startswith(SHARDS_PREFIX):
        return DATASETS["shards:PATTERN"]
    if name not in DATASETS:
        raise unknown_name("dataset", name, list(DATASETS))
    return DATASETS[name]


def load_dataset(
    name: str,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    split: str = "test",
    size: tuple[int, int] | None = None,
) -> ArrayImages | FolderImages | ShardImages | LabelMapImages | ArrayLabelMaps:
    """Return a dataset that is stored on this machine.

    >>> dataset = load_dataset("cifar10-embedded")
    >>> len(dataset), dataset.images([0, 1]).shape, dataset.class_names[3]
    (2000, (2, 32, 32, 3), 'cat')

    Args:
        name: A name of ``list_datasets``; ``folder:PATH``: one sub-folder per class, or ``images``, ``labels`` and
            ``classes.json`` with label maps; or ``shards:PATTERN`` (WebDataset).
        data_dir: Data directory; see ``driftlaw.paths.data_dir``.
        split: ``test`` or ``train``, if the dataset has it.
        size: Height and width to resize images and label maps to; for datasets with label maps.

    Raises:
        UsageError: The dataset or split does not exist.
        DataError: The dataset is not on this machine, or damaged. The message says what to do.
    """
    info = dataset_info(name)
    if split not in info.splits:
        raise unknown_name(f"split of {name}", split, list(info.splits))
    folder = paths.data_dir(data_dir)
    if info.label_maps:
        return load_label_maps(name, info.class_names, folder, split, size)
    if name.startswith(_FOLDER_PREFIX):
        path = name.removeprefix(_FOLDER_PREFIX)
        if (dataset := open_label_folder(Path(path).expanduser(), split, size)) is not None:
            return dataset
    if size is not None:
        raise UsageError(f"size={size} is for datasets with label maps, and {name} has none. Omit it.")
    if name.startswith(_FOLDER_PREFIX):
        return open_folder(path, split)
    if name.startswith(SHARDS_PREFIX):
        return ShardImages(name.removeprefix(SHARDS_PREFIX), data_dir=data_dir)
    if name == EMBEDDED:
        return read_embedded()
    if name == SHAPES:
        return generate_shapes(split)
    return _load_imagenet(info, folder, split) if info.in_class_folders else _load_cifar(info, folder, split)


def _load_imagenet(info: DatasetInfo, folder: Path, split: str) -> FolderImages:
    classes = info.find(split, folder)
    if classes is None:
        target = folder / "imagenet" / ("train" if split == "train" else "val")
        raise DataError(
            f"imagenet ({split}) was not found in {folder}. Put its 1000 class folders (named by wnid such as "
            f"n01440764, or by index such as 0000) into {target}."
        )
    description = "ImageNet training images" if split == "train" else "ImageNet validation images"
    return FolderImages(classes, split=split, name="imagenet", description=description)


def _load_cifar(info: DatasetInfo, folder: Path, split: str) -> ArrayImages:
    layout, batches = info.layout, info.find(split, folder)
    assert layout is not None  # only the CIFAR datasets get here
    if batches is None:
        raise DataError(
            f"{info.name} ({split}) was not found in {folder}. Run `driftlaw data get {info.name}`, or put the "
            f"official files {', '.join(layout.files[split])} into {folder / layout.folder}."
        )
    images, labels = read_batches(layout, batches, split)
    digest, published = content_sha256(images, labels), info.published[split]
    origin = published.variants.get(digest, info.origin)
    if published.difference(batches, len(labels), digest):
        origin = f"in the layout of {info.name}, but not its published content"
        warn_user(f"The files in {batches} ({split}, {len(labels)} images) are {origin}.")
    names = read_class_names(layout, batches) or list(info.class_names)
    return ArrayImages(info.name, images, labels, names, {"split": split, "origin": origin, "sha256": digest})


add_old_names(__name__)
