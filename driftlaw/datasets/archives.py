"""Archives of corrupted images: known ones by name, and the CIFAR-10-C layout, one ``.npy`` a corruption."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
import numpy.typing as npt

from driftlaw import paths as places
from driftlaw.datasets.folder_archive import FolderArchive, is_folder_archive
from driftlaw.datasets.protocol import SEVERITIES, Facts, Labels, Pixels, checked_indices, checked_severity
from driftlaw.errors import DataError, UsageError, unknown
from driftlaw.files import atomic_path, sha256_of

MANIFEST = "driftlaw-manifest.json"
LABELS = "labels.npy"


@dataclass(frozen=True)
class ArchiveInfo:
    """What is known of an archive without reading it.

    Attributes:
        name: what ``open_archive`` takes.
        title: one line for people.
        folder: where it is looked for under the data folder.
        dataset: the clean images it is made from.
        num_classes: how many classes.
        image_size: height and width.
        licence: what its authors say about use.
    """

    name: str
    title: str
    folder: str
    dataset: str
    num_classes: int
    image_size: tuple[int, int]
    licence: str

    def is_present(self, data_dir: str | os.PathLike[str] | None = None) -> bool:
        """Return whether something that can be opened lies in its folder."""
        folder = places.data_dir(data_dir) / self.folder
        return (folder / LABELS).is_file() or is_folder_archive(folder)


_CIFAR_C = "as the clean images; the official files CC BY 4.0"
ARCHIVES = {
    info.name: info
    for info in (
        ArchiveInfo(
            "cifar10-c", "CIFAR-10-C, the official files or our own", "CIFAR-10-C", "cifar10", 10, (32, 32), _CIFAR_C
        ),
        ArchiveInfo(
            "cifar10-c-embedded",
            "our CIFAR-10-C of the embedded test set",
            "CIFAR-10-C-embedded",
            "cifar10-embedded",
            10,
            (32, 32),
            _CIFAR_C,
        ),
        ArchiveInfo(
            "cifar100-c",
            "CIFAR-100-C, the official files or our own",
            "CIFAR-100-C",
            "cifar100",
            100,
            (32, 32),
            _CIFAR_C,
        ),
        ArchiveInfo(
            "imagenet-c", "ImageNet-C, the official folders", "ImageNet-C", "imagenet", 1000, (224, 224), _CIFAR_C
        ),
    )
}


class Archive(Protocol):
    """Corrupted images of one test set: any corruption that lies there, at five severities."""

    folder: Path
    labels: Labels
    num_classes: int

    def __len__(self) -> int:
        """Return the number of images at one severity of one corruption."""
        ...

    @property
    def image_shape(self) -> tuple[int, int]:
        """Height and width of every image."""
        ...

    def corruptions(self) -> list[str]:
        """Return the names of the corruptions that lie in the folder, sorted."""
        ...

    def images(self, corruption: str, severity: int, indices: npt.ArrayLike) -> Pixels:
        """Return images as uint8 (k, h, w, 3); ``indices`` count from 0 within the severity."""
        ...

    def facts(self, corruptions: Sequence[str] | None = None) -> Facts:
        """Return plain data for a record's header."""
        ...

    def verify(self) -> list[str]:
        """Return what is wrong with the files, one line each."""
        ...


def open_archive(folder_or_name: str | os.PathLike[str], *, data_dir: str | os.PathLike[str] | None = None) -> Archive:
    """Return the archive in a folder, or the one of a known name under the data folder.

    Args:
        folder_or_name: a folder in the layout of CIFAR-10-C or of ImageNet-C, or a name of ``ARCHIVES``.
        data_dir: where to look for a name; see ``driftlaw.paths.data_dir``.

    Raises:
        DataError: there is none, or it is damaged.
    """
    folder = archive_folder(folder_or_name, data_dir)
    return FolderArchive(folder) if is_folder_archive(folder) else CorruptedArchive(folder)


def archive_folder(folder_or_name: str | os.PathLike[str], data_dir: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder that ``open_archive`` reads for this name or folder."""
    known = ARCHIVES.get(os.fspath(folder_or_name))
    return places.data_dir(data_dir) / known.folder if known else Path(folder_or_name).expanduser()


class CorruptedArchive:
    """Corrupted images of one test set, mapped from disk.

    A file holds the same images at severities 1 to 5, one block after another. The official files have 10,000 images a
    block; any other number will do, as long as every file and the labels agree.

    Attributes:
        folder: where the files lie.
        labels: int64 (n,), the labels of one block.
        num_classes: how many classes the labels are of.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.labels = _one_block(folder, _map(folder / LABELS))
        self._manifest = read_manifest(folder)
        self.num_classes = int(self._manifest.get("num_classes") or self.labels.max() + 1)
        self._mapped: dict[str, Pixels] = {}
        if not self.corruptions():
            raise DataError(f"{folder} has no corrupted images; expected files such as fog.npy beside {LABELS}")

    def __len__(self) -> int:
        return len(self.labels)

    def corruptions(self) -> list[str]:
        """Return the names of the corruptions that lie in the folder, sorted."""
        found = (path.stem for path in self.folder.glob("*.npy"))
        return sorted(name for name in found if not name.startswith(".") and name != "labels")

    @property
    def image_shape(self) -> tuple[int, int]:
        """Height and width of every image."""
        mapped = self._open(self.corruptions()[0])
        return mapped.shape[1], mapped.shape[2]

    def images(self, corruption: str, severity: int, indices: npt.ArrayLike) -> Pixels:
        """Return images as uint8 (k, h, w, 3); ``indices`` count from 0 within the severity."""
        start = (checked_severity(severity) - 1) * len(self)
        return np.ascontiguousarray(self._open(corruption)[start + checked_indices(indices, len(self))])

    def facts(self, corruptions: Sequence[str] | None = None) -> Facts:
        """Return plain data for a record's header.

        Args:
            corruptions: whose files to name; all by default. Files without a manifest are read whole to hash them.
        """
        names = list(corruptions) if corruptions is not None else self.corruptions()
        hashes = {f"{name}.npy": self._sha256(f"{name}.npy") for name in [*names, "labels"]}
        made = self._manifest.get("recipe")
        return {
            "name": self.folder.name,
            "split": "test",
            "count": len(self),
            "num_classes": self.num_classes,
            "sha256": hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest(),
            "files": hashes,
            "origin": "made by driftlaw" if made else "a folder in the official layout",
            **({"recipe": made} if made else {}),
        }

    def verify(self) -> list[str]:
        """Return what is wrong with the files, one line each: shape, type, and sha256 where a manifest names it."""
        problems = []
        for name in self.corruptions():
            try:
                self._open(name)
            except DataError as error:
                problems.append(str(error))
        for name, noted in self._manifest.get("files", {}).items():
            path = self.folder / name
            if not path.is_file():
                problems.append(f"{path} is missing; the manifest names it")
            elif (found := sha256_of(path)) != noted["sha256"]:
                problems.append(f"{path} has sha256 {found}; the manifest says {noted['sha256']}")
        return problems

    def _open(self, corruption: str) -> Pixels:
        if corruption not in self._mapped:
            path = self.folder / f"{corruption}.npy"
            if not path.is_file():
                raise unknown(f"corruption in {self.folder}", corruption, self.corruptions())
            mapped = _map(path)
            _check_block_shape(path, mapped, len(self))
            self._mapped[corruption] = mapped
        return self._mapped[corruption]

    def _sha256(self, name: str) -> str:
        noted = self._manifest.get("files", {}).get(name)
        path = self.folder / name
        return str(noted["sha256"]) if noted and noted["bytes"] == path.stat().st_size else sha256_of(path)


class ArchiveSource:
    """An archive in the place of the clean images it was made from, for a stream that needs no clean ones.

    Args:
        name: what the archive was asked for by.
        archive: the corrupted images.
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
        """Refuse: there are no clean images here."""
        raise UsageError(
            f"«{self.name}» holds corrupted images only; for clean ones name the dataset it was made from, and this as "
            "its archive"
        )

    def facts(self) -> Facts:
        """Return plain data for a record's header; what our own archives were made of is told with them."""
        facts = self.archive.facts(corruptions=())
        clean = facts.pop("recipe", {}).get("dataset", {}).get("origin")
        facts["origin"] += f" from {clean}" if clean else ""
        return facts | {"name": self.name, "image_shape": list(self.image_shape)}


class ArchiveWriter:
    """Writes an archive file by file; a file is there whole or not at all, and a second run skips what is finished.

    Args:
        folder: where the files go.
        count_per_severity: how many images a severity has.
        labels: int (n,), the labels of one severity.
        num_classes: how many classes the labels are of; the largest label + 1 by default.
        recipe: what the images were made from; an archive of another recipe in the folder is refused.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        count_per_severity: int,
        labels: npt.ArrayLike,
        *,
        num_classes: int | None = None,
        recipe: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.count = count_per_severity
        block = np.asarray(labels, dtype=np.int64)
        if block.shape != (count_per_severity,):
            raise UsageError(f"labels have shape {block.shape}; expected ({count_per_severity},), one an image")
        self._head = {
            "count_per_severity": count_per_severity,
            "num_classes": num_classes or int(block.max()) + 1,
            "recipe": json.loads(json.dumps(dict(recipe or {"by": "driftlaw"}))),
        }
        self._files = self._take_over()
        self._sweep()
        if not self.is_done("labels"):
            self._write_array("labels", block.dtype, (SEVERITIES * self.count,), [block] * SEVERITIES)

    def is_done(self, corruption: str) -> bool:
        """Return whether the file is there and its sha256 is the one that was noted when it was finished."""
        noted, path = self._files.get(f"{corruption}.npy"), self.folder / f"{corruption}.npy"
        return noted is not None and path.is_file() and sha256_of(path) == noted["sha256"]

    def write(self, corruption: str, images: Iterable[Pixels]) -> bool:
        """Write one corruption unless it is done; return whether anything was written.

        Args:
            corruption: its name.
            images: uint8 (k, h, w, 3) each; together all images at severity 1, then all at severity 2, and so on.
        """
        if self.is_done(corruption):
            return False
        pieces = iter(images)
        first = next(pieces, None)
        if first is None:
            raise UsageError(f"no images were given for «{corruption}»")
        shape = (SEVERITIES * self.count, *first.shape[1:])
        self._write_array(corruption, np.dtype(np.uint8), shape, _chain(first, pieces))
        return True

    def _write_array(
        self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], pieces: Iterable[npt.NDArray[Any]]
    ) -> None:
        path = self.folder / f"{name}.npy"
        with atomic_path(path) as temporary:
            with open(temporary, "wb") as file:
                _stream_npy(file, dtype, shape, pieces, path)
            noted = {"sha256": sha256_of(temporary), "bytes": temporary.stat().st_size}
        self._files[path.name] = noted
        manifest = {"format": 1, **self._head, "files": dict(sorted(self._files.items()))}
        with atomic_path(self.folder / MANIFEST) as temporary:
            temporary.write_text(json.dumps(manifest, indent=1) + "\n")

    def _take_over(self) -> dict[str, Any]:
        manifest = read_manifest(self.folder)
        if not manifest:
            if any(self.folder.glob("*.npy")):
                raise DataError(
                    f"{self.folder} holds .npy files but no {MANIFEST}: they were not made by driftlaw. "
                    "Choose another folder for the new ones"
                )
            return {}
        differing = [key for key, value in self._head.items() if manifest.get(key) != value]
        if differing:
            told = "; ".join(f"{key} is {manifest.get(key)}, asked for is {self._head[key]}" for key in differing)
            raise DataError(
                f"{self.folder} holds an archive made otherwise ({told}). Choose another folder or delete it"
            )
        return dict(manifest["files"])

    def _sweep(self) -> None:
        """Remove what a killed run left half-written."""
        for leftover in self.folder.glob(".*.part.*"):
            leftover.unlink(missing_ok=True)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a folder that driftlaw wrote, or an empty one where there is none."""
    path = folder / MANIFEST
    if not path.is_file():
        return {}
    try:
        manifest = json.loads(path.read_text())
        if not isinstance(manifest, dict) or not isinstance(manifest["files"], dict):
            raise ValueError("no table of files")
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{path} cannot be read ({error}); delete it and make the archive again") from error
    return manifest


def _map(path: Path) -> npt.NDArray[Any]:
    try:
        return np.asanyarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except FileNotFoundError as error:
        raise DataError(
            f"{path.name} is missing from {path.parent}; expected a folder in the CIFAR-10-C layout "
            f"(<corruption>.npy and {LABELS}) or in ImageNet-C's (<corruption>/<severity>/<class>/). Put the official "
            "files there, or run `driftlaw data make cifar10-c` (or cifar100-c)"
        ) from error
    except (OSError, ValueError, EOFError) as error:
        raise DataError(
            f"{path.name} in {path.parent} is damaged ({error}); delete it and get or make it again"
        ) from error


def _one_block(folder: Path, labels: npt.NDArray[Any]) -> Labels:
    path = folder / LABELS
    if labels.ndim != 1 or not labels.size or labels.size % SEVERITIES or labels.dtype.kind not in "iu":
        raise DataError(f"{path} holds {labels.dtype} {labels.shape}; expected whole numbers (5 × images,)")
    blocks = np.asarray(labels, dtype=np.int64).reshape(SEVERITIES, -1)
    if (blocks != blocks[0]).any() or blocks.min() < 0:
        raise DataError(f"{path} does not repeat the same labels for each of the 5 severities")
    return np.ascontiguousarray(blocks[0])


def _check_block_shape(path: Path, found: npt.NDArray[Any], count: int) -> None:
    fits = found.dtype == np.uint8 and found.ndim == 4 and found.shape[-1] == 3
    if not fits or len(found) != SEVERITIES * count:
        raise DataError(
            f"{path.name} in {path.parent} holds {found.dtype} {found.shape}; expected uint8 "
            f"({SEVERITIES * count}, height, width, 3), as {LABELS} has {count} images a severity"
        )


def _chain(first: Pixels, rest: Iterable[Pixels]) -> Iterable[Pixels]:
    yield first
    yield from rest


def _stream_npy(
    file: BinaryIO, dtype: np.dtype[Any], shape: tuple[int, ...], pieces: Iterable[npt.NDArray[Any]], path: Path
) -> None:
    """Write an ``.npy`` file piece by piece, so that an archive of any size needs the memory of one piece."""
    descr = np.lib.format.dtype_to_descr(dtype)
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    written = 0
    for piece in pieces:
        if piece.dtype != dtype or piece.shape[1:] != shape[1:]:
            raise UsageError(f"{path.name}: a piece is {piece.dtype} {piece.shape}; expected {dtype} (k, {shape[1:]})")
        file.write(np.ascontiguousarray(piece).data)
        written += len(piece)
    if written != shape[0]:
        raise UsageError(f"{path.name}: {written} images were given; expected {shape[0]}")
