"""The official pickle layout of CIFAR-10 and CIFAR-100, read without executing code from the pickles."""

import os
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from driftlaw.datasets.protocol import Labels, Pixels, checked_labels
from driftlaw.errors import DataError


@dataclass(frozen=True)
class BatchLayout:
    """Files of one of the CIFAR datasets.

    Attributes:
        folder: Official name of the folder.
        files: Batch files of each split, in order.
        label_key: Key of the labels in a batch.
        meta_file: File with the class names.
        names_key: Key of the class names in that file.
        side: Height and width of an image.
    """

    folder: str
    files: Mapping[str, tuple[str, ...]]
    label_key: str
    meta_file: str
    names_key: str
    side: int = 32

    @property
    def all_files(self) -> tuple[str, ...]:
        """All files of the layout; the class names are last."""
        return (*(name for names in self.files.values() for name in names), self.meta_file)


def find_batches(layout: BatchLayout, folder: Path, split: str) -> Path | None:
    """Return the folder with all batches of ``split``: ``folder``, its official sub-folder, or one level down."""
    candidates = [folder / layout.folder, folder]
    if os.path.isdir(folder):
        children = sorted(child for child in folder.iterdir() if os.path.isdir(child) and child.name[0] != ".")
        candidates += [path for child in children for path in (child / layout.folder, child)]
    names = layout.files[split]
    return next((path for path in candidates if all(os.path.isfile(path / name) for name in names)), None)


def read_batches(layout: BatchLayout, folder: Path, split: str) -> tuple[Pixels, Labels]:
    """Return images uint8 (n, h, w, 3) and labels int64 (n,) of a split.

    Raises:
        DataError: A file is missing or damaged, or a pickle contains anything but arrays and plain data.
    """
    images, labels, width = [], [], 3 * layout.side**2
    for path in (folder / name for name in layout.files[split]):
        batch = read_pickle(path)
        data, classes = _entry(batch, "data", path), _entry(batch, layout.label_key, path)
        if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape[1:] != (width,):
            found = f"{data.dtype} {data.shape}" if isinstance(data, np.ndarray) else type(data).__name__
            raise DataError(
                f"The images in {path} are {found}; expected uint8 (n, {width}). Put the official file there."
            )
        integers = isinstance(classes, list) and all(isinstance(label, int) for label in classes)
        if not integers or len(classes) != len(data):
            raise DataError(f"{path} does not contain one integer label for each of its {len(data)} images.")
        images.append(data)
        labels.append(checked_labels(classes, path))
    rows = np.concatenate(images).reshape(-1, 3, layout.side, layout.side)
    return np.ascontiguousarray(rows.transpose(0, 2, 3, 1)), np.concatenate(labels)


def read_class_names(layout: BatchLayout, folder: Path) -> list[str] | None:
    """Return the class names, or None if the folder has no such file."""
    path = folder / layout.meta_file
    if not path.is_file():
        return None
    names = _entry(read_pickle(path), layout.names_key, path)
    if not isinstance(names, list) or not all(isinstance(name, bytes | str) for name in names):
        raise DataError(f"{path} does not contain a list of class names. Put the official file there.")
    return [name.decode(errors="replace") if isinstance(name, bytes) else name for name in names]


def _entry(batch: object, key: str, path: Path) -> Any:
    if isinstance(batch, dict):
        for spelling in (key.encode(), key):
            if spelling in batch:
                return batch[spelling]
    raise DataError(f"{path} has no entry '{key}'. Put the official file there.")


# What a numpy array is rebuilt from. Any other name in a pickle could execute code.
_RECONSTRUCT = np.empty(0, np.uint8).__reduce__()[0]
_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): str.encode,
}


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it refers to {module}.{name}, which is not part of an array")
        return _ALLOWED[module, name]


def read_pickle(path: Path) -> object:
    """Return the content of a pickle of lists, dicts, numbers, strings and numpy arrays; reject anything else."""
    try:
        with open(path, "rb") as file:
            return _ArrayUnpickler(file, encoding="bytes").load()
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing.") from error
    except Exception as error:  # a damaged pickle can raise nearly every built-in exception
        raise DataError(
            f"{path} cannot be read as a batch of images ({error or type(error).__name__}). It is damaged or not the "
            "official file. Delete it and download it again."
        ) from error
