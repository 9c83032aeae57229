"""The datasets driftlaw knows by name, as data."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from driftlaw import paths as places
from driftlaw.datasets.cifar import BatchLayout, find_batches
from driftlaw.datasets.imagenet import CLASSES as IMAGENET_CLASSES
from driftlaw.datasets.imagenet import find_imagenet
from driftlaw.datasets.mosaics import MosaicLayout, find_mosaics
from driftlaw.datasets.npm import PACKAGE


@dataclass(frozen=True)
class Published:
    """A split as its authors published it.

    Attributes:
        count: how many images.
        sha256: of pixels and labels, see ``content_sha256``; nothing where it is not known.
        md5: of each of its files, where that is what is known.
    """

    count: int
    sha256: str | None = None
    md5: Mapping[str, str] = field(default_factory=dict)

    def difference(self, folder: Path, count: int, sha256: str) -> str | None:
        """Return how a split that was read from ``folder`` differs from this one, or nothing where it does not."""
        if count != self.count:
            return f"{count} images; {self.count} were published"
        if self.sha256 and sha256 != self.sha256:
            return f"images and labels have sha256 {sha256}; published ones have {self.sha256}"
        for name, expected in self.md5.items():
            with open(folder / name, "rb") as file:
                found = hashlib.file_digest(file, "md5").hexdigest()
            if found != expected:
                return f"{name} has md5 {found}; the published file has {expected}"
        return None


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
        mosaic: how it may lie on disk otherwise.
        in_class_folders: whether it is ImageNet's folders.
        published: each split as published.
        download: the official archive.
        npm_package: the package it is taken from where the download fails.
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
    mosaic: MosaicLayout | None = field(default=None, repr=False)
    in_class_folders: bool = False
    published: Mapping[str, Published] = field(default_factory=dict, repr=False)
    download: Download | None = field(default=None, repr=False)
    npm_package: str | None = None

    def is_present(self, data_dir: str | os.PathLike[str] | None = None) -> bool:
        """Return whether it can be read from this machine's disk: every split, of ImageNet the test images."""
        if self.layout is None and not self.in_class_folders:
            return self.name == EMBEDDED.name
        splits = ("test",) if self.in_class_folders else self.splits
        return all(self.found(split, data_dir) is not None for split in splits)

    def found(self, split: str, data_dir: str | os.PathLike[str] | None = None) -> Path | None:
        """Return the folder a split is read from, where it lies on this machine; the official layout goes first."""
        folder, place = places.data_dir(data_dir), None
        if self.in_class_folders:
            place = find_imagenet(folder, split)
        if self.layout:
            place = find_batches(self.layout, folder, split)
        if place is None and self.mosaic:
            place = find_mosaics(self.mosaic, folder, split)
        return place

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
    npm_package=PACKAGE,
)

_CIFAR100_NAMES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale
willow_tree wolf woman worm
"""

CIFAR100 = DatasetInfo(
    name="cifar100",
    title="CIFAR-100, 50,000 training and 10,000 test images",
    num_classes=100,
    image_size=(32, 32),
    splits=("train", "test"),
    origin="A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009",
    licence="none stated; its authors ask to be cited",
    class_names=tuple(_CIFAR100_NAMES.split()),
    layout=BatchLayout(
        folder="cifar-100-python",
        files={"train": ("train",), "test": ("test",)},
        label_key="fine_labels",
        meta_file="meta",
        names_key="fine_label_names",
    ),
    mosaic=MosaicLayout(
        folder="cifar100",
        files={"train": tuple(f"train_{number}.webp" for number in range(1, 6)), "test": ("test.webp",)},
        labels_file="labels.json",
        names_key="fine_label_names",
        origin="our split: all images, 500 training and 100 test images a class drawn by us",
        sha256={
            "train": "20fc8967a96e2db7f7e863868f13923ceea7623c2ee42ad2bafc4c10583f32d4",
            "test": "c91588bec9189e7747615031dd4f958aac4e3c03d4ff578ce8be2d69e2074d1e",
        },
    ),
    published={
        "train": Published(50_000, md5={"train": "16019d7e3df5f24257cddd939b257f8d"}),
        "test": Published(10_000, md5={"test": "f0ef6b0ae62326f3e7ffdfab6717acfc"}),
    },
    download=Download(
        url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
        url_variable="DRIFTLAW_CIFAR100_URL",
        sha256="85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
    ),
)

IMAGENET = DatasetInfo(
    name="imagenet",
    title="ImageNet validation images in class folders, all or some of them",
    num_classes=IMAGENET_CLASSES,
    image_size=(224, 224),
    splits=("test", "train"),
    origin="ImageNet (ILSVRC 2012); its authors hand it out on request",
    licence="for research, on its authors' terms",
    in_class_folders=True,
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

CATALOGUE = {info.name: info for info in (EMBEDDED, CIFAR10, CIFAR100, IMAGENET, FOLDER)}
