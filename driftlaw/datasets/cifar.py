"""The official «python batches» layout of the CIFAR sets: found, read without trusting the pickles, written."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import shutil
import struct
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from driftlaw.datasets.protocol import Labels, Pixels
from driftlaw.errors import DataError
from driftlaw.files import disk_full_error, writable_folder


@dataclass(frozen=True)
class BatchLayout:
    """How one of the CIFAR sets lies on disk.

    Attributes:
        folder: the folder's official name.
        files: the batch files of each split, in order.
        label_key: where a batch keeps its labels.
        meta_file: the file that holds the names of the classes.
        names_key: where that file keeps them.
        side: height and width of an image.
    """

    folder: str
    files: Mapping[str, tuple[str, ...]]
    label_key: str
    meta_file: str
    names_key: str
    side: int = 32

    @property
    def all_files(self) -> tuple[str, ...]:
        """Every file of the layout, the class names last."""
        return (*(name for names in self.files.values() for name in names), self.meta_file)


def find_batches(layout: BatchLayout, folder: Path, split: str) -> Path | None:
    """Return the folder that holds every batch of ``split``: ``folder``, its official sub-folder, or one level down."""
    candidates = [folder / layout.folder, folder]
    if os.path.isdir(folder):
        below = sorted(child for child in folder.iterdir() if os.path.isdir(child) and not child.name.startswith("."))
        candidates += [nested for child in below for nested in (child / layout.folder, child)]
    wanted = layout.files[split]
    return next((place for place in candidates if all(os.path.isfile(place / name) for name in wanted)), None)


def read_batches(layout: BatchLayout, folder: Path, split: str) -> tuple[Pixels, Labels]:
    """Return images uint8 (n, h, w, 3) and labels int64 (n,) of a split.

    Raises:
        DataError: a file is missing, damaged, or asks to run code.
    """
    parts = [_read_batch(layout, folder / name) for name in layout.files[split]]
    rows = np.concatenate([images for images, _ in parts])
    images = rows.reshape(-1, 3, layout.side, layout.side).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), np.concatenate([labels for _, labels in parts])


def read_class_names(layout: BatchLayout, folder: Path) -> list[str] | None:
    """Return the names of the classes, or nothing where the folder has no such file."""
    path = folder / layout.meta_file
    if not path.is_file():
        return None
    names = _entry(read_pickle(path), layout.names_key, path)
    return [name.decode() if isinstance(name, bytes) else str(name) for name in names]


def write_batches(
    layout: BatchLayout, folder: Path, splits: Mapping[str, tuple[Pixels, Labels]], class_names: Sequence[str]
) -> None:
    """Write images and labels as a whole folder in the official layout; readers made for the official files read it."""
    with new_folder(folder) as building:
        for split, (images, labels) in splits.items():
            names = layout.files[split]
            rows = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
            for name, part, its in zip(names, np.split(rows, len(names)), np.split(labels, len(names)), strict=True):
                batch = {"batch_label": name.encode(), layout.label_key: its.tolist(), "data": part}
                (building / name).write_bytes(dump_pickle(batch))
        (building / layout.meta_file).write_bytes(dump_pickle({layout.names_key: [n.encode() for n in class_names]}))


@contextlib.contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder beside ``target`` that takes its place when the block ends well, else it is removed."""
    with disk_full_error(writable_folder(target.parent)):
        workplace = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
        try:
            building = workplace / "new"
            building.mkdir()
            yield building
            if target.exists():
                os.rename(target, workplace / "old")
            os.rename(building, target)
        finally:
            shutil.rmtree(workplace, ignore_errors=True)


def _read_batch(layout: BatchLayout, path: Path) -> tuple[Pixels, Labels]:
    batch = read_pickle(path)
    data, labels = _entry(batch, "data", path), _entry(batch, layout.label_key, path)
    width = 3 * layout.side * layout.side
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != width:
        found = f"{data.dtype} {data.shape}" if isinstance(data, np.ndarray) else type(data).__name__
        raise DataError(f"the images in {path} are {found}; expected uint8 (n, {width}). Put the official file there")
    whole = isinstance(labels, list) and all(isinstance(label, int) for label in labels)
    if not whole or len(labels) != len(data):
        raise DataError(f"{path} does not hold one whole-number label for each of its {len(data)} images")
    return data, np.asarray(labels, dtype=np.int64)


def _entry(batch: object, key: str, path: Path) -> Any:
    if isinstance(batch, dict):
        for spelling in (key.encode(), key):
            if spelling in batch:
                return batch[spelling]
    raise DataError(f"{path} has no entry «{key}»; expected a batch in the official python layout")


# Only what a numpy array is rebuilt from; anything else in a pickle is somebody's code.
_REBUILD = np.empty(0, np.uint8).__reduce__()[0]
_ADMITTED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _REBUILD,
    ("numpy._core.multiarray", "_reconstruct"): _REBUILD,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): str.encode,
}


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ADMITTED:
            raise pickle.UnpicklingError(f"it asks for «{module}.{name}», which is not part of an array")
        return _ADMITTED[module, name]


def read_pickle(path: Path) -> object:
    """Return what a pickle holds if that is lists, dicts, numbers, strings and numpy arrays; refuse anything else."""
    try:
        with open(path, "rb") as file:
            return _ArraysOnly(file, encoding="bytes").load()
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing") from error
    except Exception as error:  # a damaged pickle raises nearly every built-in exception there is
        raise DataError(
            f"{path} cannot be read as a batch of images ({error or type(error).__name__}); "
            "it is damaged or not the official file. Delete it and fetch it again"
        ) from error


def dump_pickle(entries: Mapping[str, bytes | list[int] | list[bytes] | npt.NDArray[np.uint8]]) -> bytes:
    """Return the pickle Python 2 would have written, as the official files were.

    Python 3 writes strings as text or bytes; the official files have neither, and readers count on it: those that ask
    for ``encoding="bytes"`` look up ``b"data"``, those that ask for ``encoding="latin1"`` look up ``"data"``.
    """
    out = io.BytesIO()
    out.write(pickle.PROTO + b"\x02" + pickle.EMPTY_DICT + pickle.MARK)
    for key, value in entries.items():
        out.write(_old_string(key.encode()))
        out.write(_old_array(value) if isinstance(value, np.ndarray) else _old_value(value))
    out.write(pickle.SETITEMS + pickle.STOP)
    return out.getvalue()


def _old_value(value: bytes | list[int] | list[bytes]) -> bytes:
    if isinstance(value, bytes):
        return _old_string(value)
    items = (_old_string(item) if isinstance(item, bytes) else _old_number(item) for item in value)
    return pickle.EMPTY_LIST + pickle.MARK + b"".join(items) + pickle.APPENDS


def _old_string(text: bytes) -> bytes:
    return pickle.BINSTRING + struct.pack("<i", len(text)) + text


def _old_number(number: int) -> bytes:
    return pickle.BININT + struct.pack("<i", number)


def _old_array(array: npt.NDArray[np.uint8]) -> bytes:
    rows, columns = array.shape
    shape = _old_number(rows) + _old_number(columns) + pickle.TUPLE2
    start = pickle.MARK + pickle.GLOBAL + b"numpy\nndarray\n" + _old_number(0) + pickle.TUPLE1 + _old_string(b"b")
    dtype = pickle.GLOBAL + b"numpy\ndtype\n" + _old_string(b"u1") + _old_number(0) + _old_number(1)
    dtype_state = [_old_number(3), _old_string(b"|"), pickle.NONE * 3, _old_number(-1), _old_number(-1), _old_number(0)]
    return b"".join(
        [
            pickle.GLOBAL + b"numpy.core.multiarray\n_reconstruct\n",
            start + pickle.TUPLE + pickle.REDUCE,
            pickle.MARK + _old_number(1) + shape,
            dtype + pickle.TUPLE3 + pickle.REDUCE,
            pickle.MARK + b"".join(dtype_state) + pickle.TUPLE + pickle.BUILD,
            pickle.NEWFALSE + _old_string(array.tobytes()) + pickle.TUPLE + pickle.BUILD,
        ]
    )
