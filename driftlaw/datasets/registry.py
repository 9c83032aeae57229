"""Known datasets and archives of corrupted images, as data."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from driftlaw import paths
from driftlaw.datasets.cifar import BatchLayout, find_batches
from driftlaw.datasets.folder_archive import is_folder_archive
from driftlaw.datasets.imagenet import NUM_CLASSES as IMAGENET_CLASSES
from driftlaw.datasets.imagenet import find_imagenet

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
        num_classes: Number of classes; None if it depends on the data.
        image_size: Height and width; None if they depend on the data.
        splits: Names of its splits.
        origin: Where it comes from.
        licence: Terms of use stated by its authors.
        class_names: One name per class, in label order.
        layout: Official file layout, for the CIFAR datasets.
        in_class_folders: True for ImageNet's class folders.
        published: Published content of each split.
        download: Official archive.
        tool: Another way to get it: a command for a checkout of driftlaw.
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
    in_class_folders: bool = False
    published: Mapping[str, Published] = field(default_factory=dict, repr=False)
    download: Download | None = field(default=None, repr=False)
    tool: str | None = None

    def is_present(self, data_dir: str | os.PathLike[str] | None = None) -> bool:
        """Return True if all splits can be read on this machine; for ImageNet, if the test images can."""
        if self.layout is None and not self.in_class_folders:
            return self.name == EMBEDDED.name
        splits = ("test",) if self.in_class_folders else self.splits
        return all(self.find(split, data_dir) is not None for split in splits)

    def find(self, split: str, data_dir: str | os.PathLike[str] | None = None) -> Path | None:
        """Return the folder that a split is read from, or None if it is not on this machine."""
        folder = paths.data_dir(data_dir)
        if self.in_class_folders:
            return find_imagenet(folder, split)
        return find_batches(self.layout, folder, split) if self.layout else None

    def folder(self, data_dir: str | os.PathLike[str] | None = None) -> Path:
        """Return the folder in which the dataset is stored."""
        return paths.data_dir(data_dir) / (self.layout.folder if self.layout else self.name)


_CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

EMBEDDED = DatasetInfo(
    name="cifar10-embedded",
    title="2,000 CIFAR-10 test images, 200 per class, in the package",
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
    # The channel means equal those of the official files (red: train 125.306918046875, test 126.02464140625).
    published={
        "train": Published(50_000, "67e12c2a5906880a4fe5595fe6d768185ad7ca587f35d3a7ece3c3b8b85035d2"),
        "test": Published(10_000, "e54a434ec35094516eacbaac0f2f9550358d985e9d1f71b47d41d333c15ba304"),
    },
    download=Download(
        url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        url_variable="DRIFTLAW_CIFAR10_URL",
        sha256="6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    ),
    tool="python -m tools.cifar_mosaics cifar10",
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

# The same 60,000 images in another split, for machines that cannot download the official files.
_OUR_SPLIT = "our split: all images, 500 training and 100 test images a class drawn by us"

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
    published={
        "train": Published(
            50_000,
            md5={"train": "16019d7e3df5f24257cddd939b257f8d"},
            variants={"20fc8967a96e2db7f7e863868f13923ceea7623c2ee42ad2bafc4c10583f32d4": _OUR_SPLIT},
        ),
        "test": Published(
            10_000,
            md5={"test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
            variants={"c91588bec9189e7747615031dd4f958aac4e3c03d4ff578ce8be2d69e2074d1e": _OUR_SPLIT},
        ),
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
    title="any folder of images with one sub-folder per class",
    num_classes=None,
    image_size=None,
    splits=("test", "train"),
    origin="yours",
    licence="yours",
)

DATASETS = {info.name: info for info in (EMBEDDED, CIFAR10, CIFAR100, IMAGENET, FOLDER)}


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
        return (folder / LABELS).is_file() or is_folder_archive(folder)


_ARCHIVES = (
    ArchiveInfo("cifar10-c", "CIFAR-10-C, official or made by driftlaw", "CIFAR-10-C", "cifar10", 10, (32, 32)),
    ArchiveInfo(
        "cifar10-c-embedded", "CIFAR-10-C of the embedded set", "CIFAR-10-C-embedded", "cifar10-embedded", 10, (32, 32)
    ),
    ArchiveInfo("cifar100-c", "CIFAR-100-C, official or made by driftlaw", "CIFAR-100-C", "cifar100", 100, (32, 32)),
    ArchiveInfo("imagenet-c", "ImageNet-C, official or made by driftlaw", "ImageNet-C", "imagenet", 1000, (224, 224)),
)
ARCHIVES = {info.name: info for info in _ARCHIVES}
