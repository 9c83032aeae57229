"""Known datasets and archives of corrupted images, described in ``registry.toml``."""

import hashlib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from driftlaw import paths
from driftlaw.datasets.cifar import BatchLayout, find_batches
from driftlaw.datasets.embedded import NAME as EMBEDDED
from driftlaw.datasets.folder_archive import corruptions_in
from driftlaw.datasets.imagenet import find_imagenet
from driftlaw.datasets.segmentation import find_label_maps
from driftlaw.datasets.shapes import NAME as SHAPES

LABELS = "labels.npy"
"""File with the labels of an archive in the CIFAR-10-C layout."""


@dataclass(frozen=True)
class Published:
    """Published content of a split.

    Attributes:
        count: Number of images.
        sha256: ``content_sha256`` of the split, if known.
        md5: md5 of its files, if that is what is known.
        variants: Other known contents: ``content_sha256`` to the origin that records state.
    """

    count: int
    sha256: str | None = None
    md5: Mapping[str, str] = field(default_factory=dict)
    variants: Mapping[str, str] = field(default_factory=dict)

    def difference(self, folder: Path, count: int, sha256: str) -> str | None:
        """Return how a split read from ``folder`` differs from the known contents, or None if it does not."""
        if sha256 in self.variants:
            return None
        if count != self.count:
            return f"found {count} images; expected {self.count}"
        if self.sha256 and sha256 != self.sha256:
            return f"images and labels have sha256 {sha256}; expected {self.sha256}"
        for name, expected in self.md5.items():
            with open(folder / name, "rb") as file:
                found = hashlib.file_digest(file, "md5").hexdigest()
            if found != expected:
                return f"{name} has md5 {found}; expected {expected}"
        return None


@dataclass(frozen=True)
class Download:
    """File at a public address.

    Attributes:
        url: Public address.
        url_variable: Environment variable with the address of a mirror.
        sha256: Expected sha256.
    """

    url: str
    url_variable: str
    sha256: str

    @property
    def address(self) -> str:
        """The mirror from the environment if it is set, else the public address."""
        return os.environ.get(self.url_variable) or self.url

    @property
    def file_name(self) -> str:
        """Last part of the public address."""
        return self.url.rpartition("/")[2]


@dataclass(frozen=True)
class DatasetInfo:
    """Description of a dataset.

    Attributes:
        name: Name for ``load_dataset``.
        title: One-line description.
        splits: Names of its splits.
        origin: Where it comes from.
        licence: Terms of use stated by its authors.
        num_classes: Number of classes; None if it depends on the data.
        image_size: Height and width; None if they depend on the data.
        class_names: One name per class, in label order.
        layout: Official file layout, for the CIFAR datasets.
        in_class_folders: True for ImageNet's class folders.
        label_maps: True for segmentation datasets, whose layouts are in ``label_maps.toml``.
        published: Published content of each split.
        download: Official archive.
        tool: Another way to get it: a command for a checkout of driftlaw.
    """

    name: str
    title: str
    splits: tuple[str, ...]
    origin: str
    licence: str
    num_classes: int | None = None
    image_size: tuple[int, int] | None = None
    class_names: tuple[str, ...] = ()
    layout: BatchLayout | None = field(default=None, repr=False)
    in_class_folders: bool = False
    label_maps: bool = False
    published: Mapping[str, Published] = field(default_factory=dict, repr=False)
    download: Download | None = field(default=None, repr=False)
    tool: str | None = None

    def is_present(self, data_dir: str | os.PathLike[str] | None = None) -> bool:
        """Return True if all splits can be read on this machine; for ImageNet, if the test images can."""
        if self.layout is None and not self.in_class_folders and not self.label_maps:
            return self.name in (EMBEDDED, SHAPES)
        splits = ("test",) if self.in_class_folders or self.label_maps else self.splits
        return all(self.find(split, data_dir) is not None for split in splits)

    def find(self, split: str, data_dir: str | os.PathLike[str] | None = None) -> Path | None:
        """Return the folder that a split is read from, or None if it is not on this machine."""
        folder = paths.data_dir(data_dir)
        if self.in_class_folders:
            return find_imagenet(folder, split)
        if self.label_maps:
            return result[0] if (result := find_label_maps(self.name, folder, split)) else None
        return find_batches(self.layout, folder, split) if self.layout else None

    def folder(self, data_dir: str | os.PathLike[str] | None = None) -> Path:
        """Return the folder in which the dataset is stored."""
        return paths.data_dir(data_dir) / (self.layout.folder if self.layout else self.name)


@dataclass(frozen=True)
class ArchiveInfo:
    """Description of a known archive.

    Attributes:
        name: Name for ``open_archive``.
        title: One-line description.
        folder: Folder in the data directory.
        dataset: The clean images from which it is made.
        num_classes: Number of classes.
        image_size: Height and width.
        licence: Terms of use stated by its authors.
    """

    name: str
    title: str
    folder: str
    dataset: str
    num_classes: int
    image_size: tuple[int, int]
    licence: str = "as the clean images; the official files CC BY 4.0"

    @property
    def tool(self) -> str:
        """Command that makes the archive, in a checkout of driftlaw."""
        return f"python -m tools.make_archive {self.name}"

    def is_present(self, data_dir: str | os.PathLike[str] | None = None) -> bool:
        """Return True if its folder contains an archive."""
        folder = paths.data_dir(data_dir) / self.folder
        return (folder / LABELS).is_file() or bool(corruptions_in(folder))


_TABLES = tomllib.loads((paths.PACKAGE / "datasets" / "registry.toml").read_text(encoding="utf-8"))
DATASETS = {info.name: info for info in TypeAdapter(list[DatasetInfo]).validate_python(_TABLES["dataset"])}
ARCHIVES = {info.name: info for info in TypeAdapter(list[ArchiveInfo]).validate_python(_TABLES["archive"])}
