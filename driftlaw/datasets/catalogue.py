"""The datasets driftlaw knows by name, as data."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from driftlaw import places
from driftlaw.datasets.batches import BatchLayout, find_batches


@dataclass(frozen=True)
class Published:
    """A split as its authors published it: how many images, and the hash of pixels and labels."""

    count: int
    sha256: str


@dataclass(frozen=True)
class Download:
    """A file at a public address.

    Attributes:
        url: where it lies.
        url_variable: the environment variable that names a mirror instead.
        sha256: what its bytes must hash to.
    """

    url: str
    url_variable: str
    sha256: str

    @property
    def address(self) -> str:
        """The address to ask: the environment's mirror if there is one."""
        return os.environ.get(self.url_variable) or self.url

    @property
    def file_name(self) -> str:
        """The last part of the published address."""
        return self.url.rpartition("/")[2]


@dataclass(frozen=True)
class DatasetInfo:
    """What is known of a dataset without reading it.

    Attributes:
        name: what ``load_dataset`` takes.
        title: one line for people.
        num_classes: how many classes; nothing where it depends on the data.
        image_size: height and width; nothing where it depends on the data.
        splits: the splits it has.
        origin: where it comes from.
        licence: what its authors say about use.
        class_names: one name a class, in label order.
        layout: how it lies on disk, where it is in python batches.
        published: each split as published.
        download: the official archive.
    """

    name: str
    title: str
    num_classes: int | None
    image_size: tuple[int, int] | None
    splits: tuple[str, ...]
    origin: str
    licence: str
    class_names: tuple[str, ...] = ()
    layout: BatchLayout | None = field(default=None, repr=False)
    published: Mapping[str, Published] = field(default_factory=dict, repr=False)
    download: Download | None = field(default=None, repr=False)

    def is_present(self, data_dir: str | os.PathLike[str] | None = None) -> bool:
        """Return whether every split can be read from this machine's disk."""
        if self.layout is None:
            return self.name == EMBEDDED.name
        folder = places.data_dir(data_dir)
        return all(find_batches(self.layout, folder, split) is not None for split in self.splits)

    def folder(self, data_dir: str | os.PathLike[str] | None = None) -> Path:
        """Return the folder the dataset is put into."""
        return places.data_dir(data_dir) / (self.layout.folder if self.layout else self.name)


_CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

EMBEDDED = DatasetInfo(
    name="cifar10-embedded",
    title="2,000 CIFAR-10 test images, 200 a class, in the package",
    num_classes=10,
    image_size=(32, 32),
    splits=("test",),
    origin="ships with driftlaw; chosen from the CIFAR-10 test set by a fixed rule",
    licence="as CIFAR-10",
    class_names=_CIFAR10_CLASSES,
)

CIFAR10 = DatasetInfo(
    name="cifar10",
    title="CIFAR-10, 50,000 training and 10,000 test images",
    num_classes=10,
    image_size=(32, 32),
    splits=("train", "test"),
    origin="A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009",
    licence="none stated; its authors ask to be cited",
    class_names=_CIFAR10_CLASSES,
    layout=BatchLayout(
        folder="cifar-10-batches-py",
        files={"train": tuple(f"data_batch_{number}" for number in range(1, 6)), "test": ("test_batch",)},
        label_key="labels",
        meta_file="batches.meta",
        names_key="label_names",
    ),
    # Channel means of these contents equal the widely printed ones of the official files to the last digit
    # (train 125.306918046875, test 126.02464140625 for red).
    published={
        "train": Published(50_000, "67e12c2a5906880a4fe5595fe6d768185ad7ca587f35d3a7ece3c3b8b85035d2"),
        "test": Published(10_000, "e54a434ec35094516eacbaac0f2f9550358d985e9d1f71b47d41d333c15ba304"),
    },
    download=Download(
        url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        url_variable="DRIFTLAW_CIFAR10_URL",
        sha256="6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    ),
)

FOLDER = DatasetInfo(
    name="folder:PATH",
    title="any folder of pictures, one sub-folder a class",
    num_classes=None,
    image_size=None,
    splits=("test", "train"),
    origin="yours",
    licence="yours",
)

CATALOGUE = {info.name: info for info in (EMBEDDED, CIFAR10, FOLDER)}
