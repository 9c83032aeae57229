"""Streams of the batches of a DataLoader or any other iterable."""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from operator import length_hint
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import IterableDataset, RandomSampler, default_collate

from driftlaw.base import Batch, Domain, Stream
from driftlaw.datasets.torch_dataset import as_pixels
from driftlaw.errors import UsageError

IMAGE_KEYS = ("images", "image", "pixel_values", "img", "inputs", "x")
LABEL_KEYS = ("labels", "label", "targets", "target", "y")
DOMAIN = Domain("stream")
LOADER = "loader"
"""Schedule in the recipe of a stream that was made from a loader."""


class LoaderStream(Stream):
    """Batches of a loader, with its images unchanged; ``make_stream`` creates one.

    All batches belong to one domain. The recipe describes what can be known about a loader, with a hash of the first
    batch of the pass that follows. A run on other images, or in another order, is therefore another run.

    >>> stream = LoaderStream([torch.rand(8, 3, 4, 4), torch.rand(8, 3, 4, 4)])
    >>> stream, [batch.images.shape[0] for batch in stream]
    (<LoaderStream: list, 2 batches>, [8, 8])

    Args:
        loader: Iterable of batches: (images, labels), (images,), images, or a dict with images and possibly labels.
        settings: Entries to add to the recipe.
    """

    num_classes = 0  # unknown

    def __init__(self, loader: Iterable[Any], settings: Mapping[str, Any] | None = None) -> None:
        if isinstance(loader, Tensor | np.ndarray | str) or not hasattr(loader, "__iter__"):
            raise UsageError(
                f"Found a {type(loader).__name__}; expected a DataLoader, a dataset, a folder or an iterable of "
                "batches. For tensors, use torch.utils.data.TensorDataset(images, labels)."
            )
        self.loader, self.settings = loader, dict(settings or {})
        self.repeatable = not isinstance(loader, Iterator)
        self._pass: Iterator[Batch] | None = None  # the next pass, if its first batch has been read
        self._first: dict[str, Any] = {}  # description of the first batch

    def __len__(self) -> int:
        if isinstance(getattr(self.loader, "dataset", None), IterableDataset):
            raise TypeError("The length of an IterableDataset is unknown: each worker may return all of its items.")
        return len(self.loader)  # type: ignore[arg-type]  # the TypeError of a loader without a length is right here

    def __repr__(self) -> str:
        length, size = length_hint(self, -1), getattr(self.loader, "batch_size", None)
        batches = f", {length if length >= 0 else 'unknown number of'} batches{f' of {size}' if size else ''}"
        return f"<LoaderStream: {self._dataset()['name']}{batches}>"

    def __iter__(self) -> Iterator[Batch]:
        batches, self._pass = self._start(), None
        yield from batches

    def recipe(self) -> dict[str, Any]:
        """Return a JSON description of the loader and of the first batch of the next pass, which is read for it.

        ``make_stream`` cannot rebuild the stream from it.
        """
        if self.repeatable or not self._first:
            self._pass = self._start()
        kind = type(self.loader)
        return {
            "schedule": LOADER,
            "dataset": self._dataset(),
            "loader": f"{kind.__module__}.{kind.__qualname__}",
            "batch_size": getattr(self.loader, "batch_size", None),
            "shuffled": isinstance(getattr(self.loader, "sampler", None), RandomSampler) or None,
            "repeatable": self.repeatable,
            **self.settings,
            **self._first,
        }

    def _dataset(self) -> dict[str, Any]:
        """Return the class names of the dataset and of the datasets it wraps, its number of images, and its folder."""
        item: Any = getattr(self.loader, "dataset", self.loader)
        count = -1 if item is self.loader else length_hint(item, -1)
        names = [type(item).__name__]
        while hasattr(item, "dataset"):  # such as a Subset
            item = item.dataset
            names.append(type(item).__name__)
        root = getattr(item, "root", None)
        path = {"path": str(root)} if isinstance(root, str | os.PathLike) else {}
        return {"name": " of ".join(names), **({"count": count} if count >= 0 else {}), **path}

    def _start(self) -> Iterator[Batch]:
        """Return the batches of the next pass. The first one is read at once."""
        if self._pass is not None:
            return self._pass
        kind = type(self.loader).__name__
        if not self.repeatable and self._first:
            raise UsageError(
                f"The {kind} of this stream has been used and cannot be repeated. Create a new one for each run, or "
                "pass a DataLoader or a list."
            )
        batches = self._batches()
        first = next(batches, None)
        if first is None:
            raise UsageError(f"The {kind} has no batches. With drop_last=True, it needs at least batch_size images.")
        shape, dtype = list(first.images.shape[1:]), str(first.images.dtype).removeprefix("torch.")
        self._first = {"image_shape": shape, "image_dtype": dtype}
        if "first_item_sha256" not in self.settings:
            self._first["first_batch_sha256"] = batch_sha256(first.images, first.labels)
        return chain([first], batches)

    def _batches(self) -> Iterator[Batch]:
        index = 0
        try:
            for item in self.loader:
                images, labels = split_batch(item, index)
                yield Batch(images, labels, DOMAIN, index, starts_domain=index == 0)
                index += 1
        except RuntimeError as error:
            sizes = re.search(r"equal size, but got (\[.*?\]) at entry \d+ and (\[.*?\])", str(error))  # of torch.stack
            if sizes is None:
                raise
            raise UsageError(
                f"Batch {index} contains items of different sizes, such as {sizes[1]} and {sizes[2]}. Resize all "
                "images in the dataset's transform, or use batch_size=1."
            ) from error


def split_batch(batch: Any, index: int) -> tuple[Tensor, Tensor | None]:
    """Return images (n, c, h, w) and labels, (n,) or label maps (n, h, w), or None, of one batch of a loader.

    Args:
        batch: what the loader returned.
        index: number of the batch, for error messages.

    Raises:
        UsageError: The batch has another structure, or labels do not fit the images.
    """
    images, labels = batch, None
    if isinstance(batch, Mapping):
        images, labels = (next((batch[key] for key in keys if key in batch), None) for keys in (IMAGE_KEYS, LABEL_KEYS))
        if images is None:
            raise UsageError(
                f"Batch {index} has the keys {', '.join(map(str, batch))}; expected images under one of "
                f"{', '.join(IMAGE_KEYS)}."
            )
    elif isinstance(batch, list | tuple) and batch:
        images, labels = batch[0], batch[1] if len(batch) > 1 else None
    if isinstance(images, np.ndarray):
        images = torch.from_numpy(images)
    if not isinstance(images, Tensor) or images.is_nested or images.layout != torch.strided:
        found = f"{images.layout} tensor" if isinstance(images, Tensor) else type(images).__name__
        raise UsageError(
            f"Batch {index} is a {type(batch).__name__}, in which driftlaw found {found} instead of images. Expected a "
            "dense tensor (n, c, h, w), alone, as the first element of a tuple, or in a dict. A list of PIL images or "
            "of (image, label) needs a collate_fn; make_stream(dataset) has one."
        )
    if images.ndim != 4 or len(images) == 0:
        raise UsageError(
            f"The images of batch {index} have shape {tuple(images.shape)}; expected (n, c, h, w). For a dataset, use "
            "DataLoader(dataset, batch_size=…); for a single image, images[None]."
        )
    return images, None if labels is None else _check_labels(labels, len(images), index)


def _check_labels(given: Any, count: int, index: int) -> Tensor:
    expected = f"expected an integer from 0, or a label map, for each of {count}. Without labels, return (images,)."
    try:
        labels: Tensor = torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UsageError(f"The labels of batch {index} are a {type(given).__name__}; {expected}") from error
    is_map = labels.ndim == 3 and len(labels) == count  # the evaluation checks height and width
    if labels.shape != (count,) and not is_map:
        hint = " Use labels.squeeze(1), or labels.argmax(1) for one-hot labels." if labels.ndim in (2, 4) else ""
        raise UsageError(f"The labels of batch {index} have shape {tuple(labels.shape)}; {expected}{hint}")
    if labels.is_floating_point() or labels.is_complex():
        raise UsageError(f"The labels of batch {index} have dtype {labels.dtype}; {expected} Use labels.long().")
    if not is_map and int(labels.min()) < 0:
        raise UsageError(f"Batch {index} has the label {int(labels.min())}; {expected}")
    return labels


def batch_sha256(images: Tensor, labels: Tensor | None) -> str:
    """Return the sha256 of the bytes of images and labels."""
    digest = hashlib.sha256()
    for tensor in [images] if labels is None else [images, labels]:
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def collate(items: list[Any]) -> Any:
    """Stack the items of a dataset like torch's ``default_collate``; PIL images become uint8 tensors (3, h, w)."""

    def convert(value: Any) -> Any:
        if isinstance(value, Image.Image):
            return torch.from_numpy(as_pixels(value).copy()).permute(2, 0, 1)
        if isinstance(value, Mapping):
            return {key: convert(part) for key, part in value.items()}
        return tuple(map(convert, value)) if isinstance(value, tuple | list) else value

    return default_collate([convert(item) for item in items])
