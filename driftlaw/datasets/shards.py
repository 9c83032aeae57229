"""WebDataset shards: tar files of images and labels, local or at an address of fsspec; images are read on access."""

import contextlib
import hashlib
import json
import os
import re
import tarfile
from collections.abc import Iterator
from functools import partial
from itertools import groupby
from pathlib import PurePosixPath
from typing import Any

import fsspec
import numpy as np
import numpy.typing as npt

from driftlaw.datasets.image_files import SUFFIXES, EncodedImage, open_image, read_images
from driftlaw.datasets.image_folder import MAX_UNCHANGED_SIZE, describe_size, output_shape
from driftlaw.datasets.protocol import Labels, Metadata, Pixels, checked_indices
from driftlaw.errors import DataError, DriftlawError, UsageError
from driftlaw.files import MAX_CLASSES

SEPARATOR = "|"
"""Joins the addresses of several shards in the name of a dataset; fsspec uses ``::``."""
MAX_SHARDS = 100_000
MAX_LABEL_BYTES = 2**20
MAX_UNUSED_BYTES = 2**20
"""One read gets the images of a batch that are in one shard if at most this many bytes between them are not used."""
_BRACES = re.compile(r"\{(?:([0-9]{1,9})\.\.([0-9]{1,9})|([^{}]*,[^{}]*))\}")


def is_shards(data: str) -> bool:
    """Return True if a text names shards: tar files, or an address such as ``s3://bucket/x.tar``."""
    return "://" in data or data.endswith((".tar", ".tar}"))


def expand_braces(pattern: str) -> list[str]:
    """Return the addresses of a pattern.

    >>> expand_braces("shards/{08..10}.tar")
    ['shards/08.tar', 'shards/09.tar', 'shards/10.tar']
    >>> expand_braces("{fog,snow}-{0..1}.tar")
    ['fog-0.tar', 'fog-1.tar', 'snow-0.tar', 'snow-1.tar']

    Raises:
        UsageError: A range is empty, or there are more than 100,000 addresses.
    """
    addresses = [pattern]
    while match := _BRACES.search(addresses[0]):
        first, last, names = match.groups()
        values = names.split(",") if names else range(int(first), int(last) + 1)
        if not 0 < len(values) * len(addresses) <= MAX_SHARDS:
            raise UsageError(f"'{pattern}' gives no shards, or more than {MAX_SHARDS:,}. Expected {{000..049}}.")
        texts = [str(value) if names else f"{value:0{len(first)}d}" for value in values]
        addresses = [address.replace(match[0], text, 1) for address in addresses for text in texts]
    return addresses


class ShardImages:
    """Images of tar files in the WebDataset format, in the order of the shards and of the files in them.

    A sample is a run of files with the same key, which is the name up to the first dot: one image, and possibly a label
    in ``.cls`` or under ``label`` in ``.json``. Images have the size that ``FolderImages`` gives them.

    Every shard is read once, to find its images and labels. The result is stored in the cache directory until the
    shard changes. It has 24 bytes per image, and nothing else stays in memory.

    Args:
        pattern: Addresses of the shards, such as ``shards/{000..049}.tar``, joined by ``|`` if there are several.
        data_dir: Data directory, for the cache; see ``driftlaw.paths.data_dir``.

    Raises:
        DataError: A shard is missing or damaged, or a sample is not as expected.
    """

    def __init__(self, pattern: str, *, data_dir: str | os.PathLike[str] | None = None) -> None:
        from driftlaw.torch_files import cache_dir, cached  # imports torch

        self.name = f"shards:{pattern}"
        self._addresses = [address for part in pattern.split(SEPARATOR) for address in expand_braces(part)]
        versions = [_version(address) for address in self._addresses]  # missing shards are reported first
        indexes = [
            cached("shard", version, partial(index_shard, address), folder=cache_dir(data_dir))
            for address, version in zip(self._addresses, versions, strict=True)
        ]
        self._first = np.cumsum([0, *(len(index["offsets"]) for index in indexes)])  # image of every shard
        self._offsets, self._sizes, self.labels = (
            np.concatenate([np.array(index[key]) for index in indexes]) for key in ("offsets", "sizes", "labels")
        )
        labelled = [index["labels"][0] >= 0 for index in indexes]
        if len(set(labelled)) > 1:
            named, other = (self._addresses[labelled.index(value)] for value in (True, False))
            raise DataError(f"Samples of {named} have labels, but those of {other} have none. Expected all or none.")
        self.num_classes = int(self.labels.max()) + 1
        self.class_names = [str(number) for number in range(self.num_classes)]
        shapes = {tuple(index["image_shape"]) for index in indexes}
        self.image_shape, self._transform = output_shape(shapes)
        digest = hashlib.sha256()
        for address, index in zip(self._addresses, indexes, strict=True):
            digest.update(f"{PurePosixPath(address).name} {index['sha256']}\n".encode())
        self._sha256 = digest.hexdigest()

    def __len__(self) -> int:
        return len(self.labels)

    def images(self, indices: npt.ArrayLike) -> Pixels:
        """Return the images at ``indices`` as uint8 (k, h, w, 3)."""
        return read_images(self._encoded(checked_indices(indices, len(self))), self.image_shape, self._transform)

    def metadata(self) -> Metadata:
        """Return JSON data for the header of a record.

        The sha256 covers the names of the shards, names and sizes of the files in them, all labels, and the content of
        the first image of every shard.
        """
        return {
            "name": self.name,
            "split": "test",
            "count": len(self),
            "num_classes": self.num_classes,
            "image_shape": list(self.image_shape),
            "sha256": self._sha256,
            "origin": f"{len(self._addresses)} WebDataset shards, {describe_size(self._transform)}",
        }

    def _encoded(self, indices: Labels) -> list[EncodedImage]:
        images: dict[int, EncodedImage] = {}
        shards = np.searchsorted(self._first, indices, side="right") - 1
        for shard in np.unique(shards):
            address, rows = self._addresses[shard], np.flatnonzero(shards == shard)
            starts = self._offsets[indices[rows]]
            ends = starts + self._sizes[indices[rows]]
            begin, end = starts.min(), ends.max()
            if end - begin <= (ends - starts).sum() + MAX_UNUSED_BYTES:
                data = _read_ranges(address, [int(begin)], [int(end)])[0]
                parts = [data[start - begin : stop - begin] for start, stop in zip(starts, ends, strict=True)]
            else:
                parts = _read_ranges(address, starts.tolist(), ends.tolist())
            for row, start, part in zip(rows, starts, parts, strict=True):
                images[int(row)] = EncodedImage(part, partial(describe_sample, address, int(start)))
        return [images[row] for row in range(len(indices))]


def index_shard(address: str) -> dict[str, Any]:
    """Return where the images of a shard are, and their labels.

    Returns:
        ``offsets``, ``sizes`` and ``labels``: one integer per image; without labels, -1. ``image_shape``: height and
        width if all images share one size of at most 224×224, else (0, 0). ``sha256``: see ``ShardImages.metadata``.
    """
    offsets, sizes, labels, shape, digest = list[int](), list[int](), list[int](), (0, 0), hashlib.sha256()
    with _opened(address) as (file, tar):
        for key, members in groupby(_files(tar), key=sample_key):
            image, found = None, dict[str, int]()
            for member in members:
                suffix = PurePosixPath(member.name).name.partition(".")[2].lower()
                digest.update(f"{member.name}\0{member.size}\n".encode(errors="surrogateescape"))
                if f".{suffix}" in SUFFIXES:
                    if image is not None:
                        raise DataError(f"Sample '{key}' in {address} has two images. Expected one image per sample.")
                    image = member
                elif suffix in ("cls", "json"):
                    text = _read(file, member, MAX_LABEL_BYTES)
                    if (label := _parse_label(text, suffix, f"Sample '{key}' in {address}")) is not None:
                        found[suffix] = label
            if image is None:
                raise DataError(
                    f"Sample '{key}' in {address} has no image ({', '.join(sorted(SUFFIXES))}). A sample is a run of "
                    "files whose names are equal up to the first dot. Write its files next to each other."
                )
            if not offsets or shape != (0, 0):
                data = _read(file, image)
                with open_image(EncodedImage(data, partial("Sample '{}' in {}".format, key, address))) as opened:
                    size = opened.height, opened.width
                if not offsets:
                    digest.update(data)
                shape = size if max(size) <= MAX_UNCHANGED_SIZE and (not offsets or size == shape) else (0, 0)
            offsets.append(image.offset_data)
            sizes.append(image.size)
            labels.append(found.get("cls", found.get("json", -1)))
            digest.update(f"{labels[-1]}\n".encode())
            if (labels[0] < 0) != (labels[-1] < 0):
                state = "no label" if labels[-1] < 0 else "a label"
                raise DataError(f"Sample '{key}' in {address} has {state}, unlike the first one. Expected all or none.")
        file.seek(tar.offset)
        if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):  # tarfile stops at a damaged header
            raise tarfile.ReadError(f"it is truncated or damaged after {len(offsets)} samples")
        if not offsets:
            raise DataError(f"The shard {address} contains no samples. Expected images, such as 0001.jpg.")
    lists = {"offsets": offsets, "sizes": sizes, "labels": labels}
    return {**lists, "image_shape": shape, "sha256": digest.hexdigest()}


def sample_key(member: tarfile.TarInfo) -> str:
    """Return the key of a file, as WebDataset defines it: its path up to the first dot of the file name."""
    folder, slash, name = member.name.rpartition("/")
    return f"{folder}{slash}{name.partition('.')[0]}"


def describe_sample(address: str, offset: int) -> str:
    """Return text that names the sample whose image starts at byte ``offset`` of a shard. The shard is read for it."""
    with contextlib.suppress(DataError), _opened(address) as (_, tar):
        for member in _files(tar):
            if member.offset_data == offset:
                return f"Sample '{sample_key(member)}' in {address}"
    return f"The image at byte {offset} of {address}, which has changed since it was indexed,"


def _files(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the regular files of a tar, without hidden ones."""
    for member in tar:
        if member.size < 0:  # some versions of Python would read the same header for ever
            raise tarfile.ReadError("it contains a file of negative size")
        if member.isreg() and not PurePosixPath(member.name).name.startswith((".", "__")):
            yield member


def _parse_label(text: bytes, suffix: str, sample: str) -> int | None:
    """Return the label in the content of a ``.cls`` or ``.json`` file; None if a JSON object has no ``label``."""
    try:
        value = int(text) if suffix == "cls" else json.loads(text)
        if suffix == "json":
            value = value.get("label") if isinstance(value, dict) else None
    except (ValueError, RecursionError):
        value = text[:40].decode(errors="replace")
    if value is not None and (type(value) is not int or not 0 <= value < MAX_CLASSES):
        raise DataError(f"{sample} has the label {value!r} in .{suffix}; expected an integer from 0.")
    return value


def _version(address: str) -> str:
    """Return a hash of an address and of the size and time of its file."""
    with _shard_errors(address):
        filesystem, path = fsspec.core.url_to_fs(address)
        if filesystem.info(path)["type"] != "file":
            raise DataError(f"The shard {address} is not a file.")
        return hashlib.sha256(f"{address}\0{filesystem.ukey(path)}".encode()).hexdigest()


@contextlib.contextmanager
def _opened(address: str) -> Iterator[tuple[Any, tarfile.TarFile]]:
    with _shard_errors(address), fsspec.open(address, "rb") as file, tarfile.open(fileobj=file, mode="r:") as tar:
        yield file, tar


def _read(file: Any, member: tarfile.TarInfo, limit: int | None = None) -> bytes:
    file.seek(member.offset_data)
    data: bytes = file.read(member.size if limit is None else min(member.size, limit))
    return data


def _read_ranges(address: str, starts: list[int], ends: list[int]) -> list[bytes]:
    with _shard_errors(address):
        filesystem, path = fsspec.core.url_to_fs(address)
        parts: list[bytes] = filesystem.cat_ranges([path] * len(starts), starts, ends, on_error="raise")
        return parts


@contextlib.contextmanager
def _shard_errors(address: str) -> Iterator[None]:
    try:
        yield
    except (DriftlawError, MemoryError):
        raise
    except FileNotFoundError as error:
        raise DataError(f"The shard {address} does not exist. Restore it, or pass the shards that exist.") from error
    except Exception as error:  # of tarfile, and of the library of any protocol
        raise DataError(
            f"The shard {address} cannot be read: {error}. Expected an uncompressed tar file in the WebDataset format. "
            "Restore it, then run the same command again."
        ) from error
