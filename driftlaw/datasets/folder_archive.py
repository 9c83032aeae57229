"""Archives in the ImageNet-C layout: ``<corruption>/<severity>/<class>/*.JPEG``, read on access."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from driftlaw.datasets.image_files import image_size, read_images
from driftlaw.datasets.image_folder import class_files, class_labels, images_per_class
from driftlaw.datasets.protocol import SEVERITIES, Metadata, Pixels, checked_indices, checked_severity
from driftlaw.errors import DataError, unknown_name

_LEVELS = tuple(str(severity) for severity in range(1, SEVERITIES + 1))


def corruptions_in(folder: Path) -> list[str]:
    """Return the names of the ``<corruption>/<severity>`` folders in ``folder``, sorted."""
    if not folder.is_dir():
        return []
    children = (child for child in folder.iterdir() if child.is_dir() and not child.name.startswith("."))
    return sorted(child.name for child in children if any((child / level).is_dir() for level in _LEVELS))


class FolderArchive:
    """Corrupted images of one test set, one file per image.

    The list of files is read once, from the first severity found, and used for all others: the official folders have
    the same files everywhere. A file that is missing elsewhere raises an error when it is read.

    Attributes:
        folder: Folder of the corruptions.
        labels: int64 (n,), labels of one severity. Classes are the sorted class folders.
        num_classes: Number of class folders.
        class_names: Their names.
        image_shape: Height and width of every image.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._corruptions = corruptions_in(folder)
        if not self._corruptions:
            raise DataError(f"{folder} has no <corruption>/<severity>/<class> folders. Put the official folders there.")
        first = folder / self._corruptions[0]
        first /= next(level for level in _LEVELS if (first / level).is_dir())
        self.class_names, files = class_files(first)
        self.num_classes = len(self.class_names)
        self.labels = class_labels(files)
        self._files = [path.relative_to(first) for class_paths in files for path in class_paths]
        self.image_shape = image_size(first / self._files[0])

    def __len__(self) -> int:
        return len(self._files)

    def corruptions(self) -> list[str]:
        """Return the names of the corruptions in the folder, sorted."""
        return list(self._corruptions)

    def images(self, corruption: str, severity: int, indices: npt.ArrayLike) -> Pixels:
        """Return images as uint8 (k, h, w, 3); ``indices`` count from 0 within the severity."""
        if corruption not in self._corruptions:
            raise unknown_name(f"corruption in {self.folder}", corruption, self.corruptions())
        folder = self.folder / corruption / str(checked_severity(severity))
        if not folder.is_dir():
            raise DataError(f"{folder} is missing. Put that severity of the official files there.")
        paths = [folder / self._files[index] for index in checked_indices(indices, len(self))]
        return read_images(paths, self.image_shape)

    def metadata(self, corruptions: Sequence[str] | None = None) -> Metadata:
        """Return JSON data for the header of a record.

        The sha256 covers the names of all images and the sizes of the first image of every class, because reading
        millions of files would take longer than a run.

        Args:
            corruptions: Corruptions to include; all by default.
        """
        names = list(corruptions) if corruptions is not None else self.corruptions()
        listing = "\n".join(path.as_posix() for path in self._files)
        hashes = {"pictures": hashlib.sha256(listing.encode()).hexdigest()}
        hashes |= {name: self._sizes_sha256(name) for name in names}
        return {
            "name": self.folder.name,
            "split": "test",
            "count": len(self),
            "num_classes": self.num_classes,
            "sha256": hashlib.sha256(repr(sorted(hashes.items())).encode()).hexdigest(),
            "files": hashes,
            "origin": ", ".join(["folders in the official layout", *images_per_class(self.labels)]),
        }

    def verify(self) -> list[str]:
        """Return one line per severity with missing images."""
        problems = []
        for name in self._corruptions:
            for level in _LEVELS:
                folder = self.folder / name / level
                missing = [path for path in self._files if not os.path.isfile(folder / path)]
                if missing:
                    problems.append(f"{folder}: {len(missing)} of {len(self)} images are missing, first {missing[0]}")
        return problems

    def _sizes_sha256(self, corruption: str) -> str:
        digest = hashlib.sha256()
        _, first_of_class = np.unique(self.labels, return_index=True)
        for level in _LEVELS:
            for file in (self._files[index] for index in first_of_class):
                path = self.folder / corruption / level / file
                size = path.stat().st_size if path.is_file() else -1
                digest.update(f"{level}/{file.as_posix()} {size}\n".encode())
        return digest.hexdigest()
