"""Corrupted images in the layout of ImageNet-C: ``<corruption>/<severity>/<class>/*.JPEG``, read when asked for."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from driftlaw.datasets.image_files import read_pictures, size_of
from driftlaw.datasets.image_folder import class_files, counted_a_class, labels_of
from driftlaw.datasets.protocol import SEVERITIES, Facts, Pixels, checked_indices, checked_severity
from driftlaw.errors import DataError, unknown

_LEVELS = tuple(str(severity) for severity in range(1, SEVERITIES + 1))


def is_folder_archive(folder: Path) -> bool:
    """Return whether a folder holds corruptions as folders of severities."""
    return bool(_corruptions_in(folder))


class FolderArchive:
    """Corrupted pictures of one test set, each in a file of its own.

    The list of pictures is read once, from the first severity there is, and holds for all the others: the official
    folders agree in it. A picture that is missing elsewhere is told when it is asked for.

    Attributes:
        folder: where the corruptions lie.
        labels: int64 (n,), the labels of one severity; classes are its folders, sorted.
        num_classes: how many class folders there are.
        class_names: their names.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._names = _corruptions_in(folder)
        if not self._names:
            raise DataError(f"{folder} has no <corruption>/<severity>/<class> folders; put the official ones there")
        first = folder / self._names[0]
        first /= next(level for level in _LEVELS if (first / level).is_dir())
        self.class_names, files = class_files(first)
        self.num_classes = len(self.class_names)
        self.labels = labels_of(files)
        self._files = [path.relative_to(first) for own in files for path in own]
        self.image_shape = size_of(first / self._files[0])

    def __len__(self) -> int:
        return len(self._files)

    def corruptions(self) -> list[str]:
        """Return the names of the corruptions that lie in the folder, sorted."""
        return list(self._names)

    def images(self, corruption: str, severity: int, indices: npt.ArrayLike) -> Pixels:
        """Return images as uint8 (k, h, w, 3), unchanged; ``indices`` count from 0 within the severity."""
        place = self._place(corruption, severity)
        chosen = [place / self._files[index] for index in checked_indices(indices, len(self))]
        return read_pictures(chosen, self.image_shape, _unchanged)

    def facts(self, corruptions: Sequence[str] | None = None) -> Facts:
        """Return plain data for a record's header.

        The sha256 is of the names of all pictures and the sizes of the first one of every class: reading millions of
        files would take longer than the run.

        Args:
            corruptions: whose files to look at; all by default.
        """
        names = list(corruptions) if corruptions is not None else self.corruptions()
        listed = "\n".join(path.as_posix() for path in self._files)
        hashes = {"pictures": hashlib.sha256(listed.encode()).hexdigest()}
        hashes |= {name: self._sizes_sha256(name) for name in names}
        return {
            "name": self.folder.name,
            "split": "test",
            "count": len(self),
            "num_classes": self.num_classes,
            "sha256": hashlib.sha256(repr(sorted(hashes.items())).encode()).hexdigest(),
            "files": hashes,
            "origin": ", ".join(["folders in the official layout", *counted_a_class(self.labels)]),
        }

    def verify(self) -> list[str]:
        """Return what is wrong with the files, one line each: severities and pictures that are missing."""
        problems = []
        for name in self._names:
            for level in _LEVELS:
                place = self.folder / name / level
                lacking = [path for path in self._files if not os.path.isfile(place / path)]
                if lacking:
                    problems.append(f"{place} lacks {len(lacking)} of {len(self)} pictures, such as {lacking[0]}")
        return problems

    def _place(self, corruption: str, severity: int) -> Path:
        if corruption not in self._names:
            raise unknown(f"corruption in {self.folder}", corruption, self.corruptions())
        place = self.folder / corruption / str(checked_severity(severity))
        if not place.is_dir():
            raise DataError(f"{place} is missing; put that severity of the official files there")
        return place

    def _sizes_sha256(self, corruption: str) -> str:
        digest = hashlib.sha256()
        _, first_of_class = np.unique(self.labels, return_index=True)
        for level in _LEVELS:
            for path in (self._files[index] for index in first_of_class):
                whole = self.folder / corruption / level / path
                digest.update(f"{level}/{path.as_posix()} {_bytes_of(whole)}\n".encode())
        return digest.hexdigest()


def _bytes_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _unchanged(picture: Image.Image) -> Image.Image:
    return picture


def _corruptions_in(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    found = (child for child in folder.iterdir() if child.is_dir() and not child.name.startswith("."))
    return sorted(child.name for child in found if any((child / level).is_dir() for level in _LEVELS))
