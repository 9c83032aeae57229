"""Archives of corrupted images, and the CIFAR-10-C layout: one ``.npy`` file per corruption."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field, StrictInt, ValidationError

from driftlaw import paths
from driftlaw.datasets.folder_archive import FolderArchive, corruptions_in
from driftlaw.datasets.protocol import SEVERITIES, Pixels, checked_indices, checked_labels, checked_severity
from driftlaw.datasets.registry import ARCHIVES, LABELS
from driftlaw.errors import DataError, UsageError, describe_validation, unknown_name
from driftlaw.files import MAX_CLASSES, check_regular_file, sha256_of

MANIFEST = "driftlaw-manifest.json"


class Manifest(BaseModel):
    """Manifest of an archive that driftlaw made: sha256 and bytes of its files, and what they were made from."""

    files: dict[str, dict[str, str | StrictInt]] = {}
    num_classes: Annotated[StrictInt, Field(ge=1, le=MAX_CLASSES)] | None = None
    count_per_severity: StrictInt | None = None
    recipe: dict[str, Any] | None = None


def open_archive(folder_or_name: str | os.PathLike[str], *, data_dir: str | os.PathLike[str] | None = None) -> Archive:
    """Return the archive in a folder, or a known archive in the data directory.

    Args:
        folder_or_name: A folder in the CIFAR-10-C or ImageNet-C layout, or a name in ``ARCHIVES``.
        data_dir: Data directory for names; see ``driftlaw.paths.data_dir``.

    Raises:
        DataError: The archive is missing or damaged.
    """
    folder = archive_folder(folder_or_name, data_dir)
    return FolderArchive(folder) if corruptions_in(folder) else CorruptedArchive(folder)


def archive_folder(folder_or_name: str | os.PathLike[str], data_dir: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder that ``open_archive`` reads for a name or folder."""
    info = ARCHIVES.get(os.fspath(folder_or_name))
    return paths.data_dir(data_dir) / info.folder if info else Path(folder_or_name).expanduser()


class CorruptedArchive:
    """Archive in the CIFAR-10-C layout, memory-mapped.

    Each file contains the same images at severities 1 to 5, in five blocks. The official files have 10,000 images per
    block. Any other number works if all files and the labels agree.

    Attributes:
        folder: Folder of the files.
        labels: int64 (n,), labels of one block.
        num_classes: Number of classes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        labels = _memory_map(folder / LABELS)
        if labels.ndim != 1 or not labels.size or labels.size % SEVERITIES or labels.dtype.kind not in "iu":
            found = f"{labels.dtype} {labels.shape}"
            raise DataError(f"{folder / LABELS} contains {found}; expected integers (5 × images,).")
        blocks = checked_labels(labels, folder / LABELS).reshape(SEVERITIES, -1)
        if (blocks != blocks[0]).any():
            raise DataError(f"{folder / LABELS} does not repeat the same labels for each of the 5 severities.")
        self.labels = np.ascontiguousarray(blocks[0])
        self._manifest = read_manifest(folder)
        self.num_classes = self._manifest.num_classes or int(self.labels.max()) + 1
        self._mapped: dict[str, Pixels] = {}
        if not self.corruptions():
            raise DataError(f"{folder} has no corrupted images. Expected files such as fog.npy next to {LABELS}.")

    def __len__(self) -> int:
        return len(self.labels)

    def corruptions(self) -> list[str]:
        """Return the names of the corruptions in the folder, sorted."""
        names = (path.stem for path in self.folder.glob("*.npy"))
        return sorted(name for name in names if not name.startswith(".") and name != "labels")

    @property
    def image_shape(self) -> tuple[int, int]:
        """Height and width of every image."""
        images = self._open(self.corruptions()[0])
        return images.shape[1], images.shape[2]

    def images(self, corruption: str, severity: int, indices: npt.ArrayLike) -> Pixels:
        """Return images as uint8 (k, h, w, 3); ``indices`` count from 0 within the severity."""
        start = (checked_severity(severity) - 1) * len(self)
        return np.ascontiguousarray(self._open(corruption)[start + checked_indices(indices, len(self))])

    def metadata(self, corruptions: Sequence[str] | None = None) -> dict[str, Any]:
        """Return JSON data for the header of a record.

        Args:
            corruptions: Corruptions to include; all by default. Their files are read to hash them, once per process.

        Raises:
            DataError: A file differs from its sha256 in the manifest.
        """
        names = list(corruptions) if corruptions is not None else self.corruptions()
        hashes = {f"{name}.npy": self._sha256(f"{name}.npy") for name in [*names, "labels"]}
        recipe = self._manifest.recipe
        return {
            "name": self.folder.name,
            "split": "test",
            "count": len(self),
            "num_classes": self.num_classes,
            "sha256": hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest(),
            "files": hashes,
            "origin": "made by driftlaw" if recipe else "a folder in the official layout",
            **({"recipe": recipe} if recipe else {}),
        }

    def verify(self) -> list[str]:
        """Return the problems of the files, one line each: shape, dtype, and sha256 if there is a manifest."""
        problems = []
        for name in self.corruptions():
            try:
                self._open(name)
            except DataError as error:
                problems.append(str(error))
        for name in self._manifest.files:
            try:
                self._sha256(name)
            except DataError as error:
                problems.append(str(error))
        return problems

    def _open(self, corruption: str) -> Pixels:
        if corruption not in self._mapped:
            path = self.folder / f"{corruption}.npy"
            if not path.is_file():
                raise unknown_name(f"corruption in {self.folder}", corruption, self.corruptions())
            images = _memory_map(path)
            valid = images.dtype == np.uint8 and images.ndim == 4 and images.shape[-1] == 3
            if not valid or len(images) != SEVERITIES * len(self):
                raise DataError(
                    f"{path.name} in {self.folder} is {images.dtype} {images.shape}; expected uint8 "
                    f"({SEVERITIES * len(self)}, height, width, 3), as {LABELS} has {len(self)} labels per severity."
                )
            self._mapped[corruption] = images
        return self._mapped[corruption]

    def _sha256(self, name: str) -> str:
        entry, path = self._manifest.files.get(name, {}), self.folder / name
        if not path.is_file():
            raise DataError(f"{path} is missing or not a file. Put it there, or make the archive again.")
        status = path.stat()
        found = _sha256_of_version(path, status.st_size, status.st_mtime_ns, status.st_ino)
        if found != (stated := entry.get("sha256", found)):
            raise DataError(
                f"{path} has sha256 {found}; the manifest says {stated}. Delete the file and make it again."
            )
        return found


@lru_cache(maxsize=1024)
def _sha256_of_version(path: Path, *version: int) -> str:
    """Return the sha256 of a file; it is read again if its size, time or inode has changed."""
    return sha256_of(path)


Archive = CorruptedArchive | FolderArchive
"""Corrupted images of one test set at five severities, in one of the two official layouts."""


class ArchiveDataset:
    """An archive in place of the clean dataset, for streams that need no clean images.

    Args:
        name: Name by which the archive was requested.
        archive: The corrupted images.
    """

    def __init__(self, name: str, archive: Archive) -> None:
        self.name, self.archive = name, archive
        self.labels = archive.labels
        self.num_classes = archive.num_classes
        self.class_names = [str(number) for number in range(archive.num_classes)]

    def __len__(self) -> int:
        return len(self.archive)

    @property
    def image_shape(self) -> tuple[int, int]:
        """Height and width of every image."""
        return self.archive.image_shape

    def images(self, indices: npt.ArrayLike) -> Pixels:
        """Raise ``UsageError``: there are no clean images."""
        raise UsageError(
            f"'{self.name}' contains corrupted images only. To use clean images, pass the dataset it was made from as "
            f"dataset, and '{self.name}' as archive."
        )

    def metadata(self) -> dict[str, Any]:
        """Return JSON data for the header of a record, with the origin of the clean images if it is known."""
        metadata = self.archive.metadata(corruptions=())
        dataset = metadata.pop("recipe", {}).get("dataset")
        origin = dataset.get("origin") if isinstance(dataset, dict) else None
        metadata["origin"] += f" from {origin}" if origin else ""
        return metadata | {"name": self.name, "image_shape": list(self.image_shape)}


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of an archive that driftlaw made, or an empty one if there is none."""
    path = folder / MANIFEST
    if not path.is_file():
        return Manifest()
    try:
        manifest = Manifest.model_validate_json(path.read_bytes())
        if not manifest.files:
            raise ValueError("no table of files")
    except (OSError, ValueError) as error:
        reason = describe_validation(error) if isinstance(error, ValidationError) else error
        raise DataError(f"{path} cannot be read ({reason}). Delete it and make the archive again.") from error
    return manifest


def _memory_map(path: Path) -> npt.NDArray[Any]:
    check_regular_file(path)
    try:
        return np.asanyarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except FileNotFoundError as error:
        raise DataError(
            f"{path.name} is missing from {path.parent}. Expected a folder in the CIFAR-10-C layout (<corruption>.npy "
            f"and {LABELS}) or in the ImageNet-C layout (<corruption>/<severity>/<class>/). Put the official files "
            "there, or make an archive in a checkout of driftlaw with `python -m tools.make_archive cifar10-c`."
        ) from error
    except Exception as error:  # numpy raises many types for a damaged header
        raise DataError(f"{path.name} in {path.parent} is damaged ({error}). Replace it.") from error
