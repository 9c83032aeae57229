"""Packed states of streams: all tensors of a state in one block of bytes, in memory and in files."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from driftlaw.checkpoints import save_checkpoint
from driftlaw.errors import DataError
from driftlaw.torch_files import read_torch_file

ALIGNMENT = 16  # bytes; a view of another dtype needs an aligned start
FORMAT = 1  # of files


class Entry(NamedTuple):
    """One tensor of a state.

    Attributes:
        name: its name.
        dtype: its dtype, such as ``float32``.
        shape: its shape.
        pixels: True if it is float32 and each value k/255 is stored as the byte k.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    pixels: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes in packed data, without padding."""
        itemsize: int = 1 if self.pixels else getattr(torch, self.dtype).itemsize
        return itemsize * math.prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """The tensors that are packed one after the other."""

    entries: tuple[Entry, ...]

    @cached_property
    def sizes(self) -> list[int]:
        """Bytes of every tensor, with padding."""
        return [-(-entry.nbytes // ALIGNMENT) * ALIGNMENT for entry in self.entries]

    def split(self, data: Tensor) -> dict[Entry, Tensor]:
        """Return the bytes of every tensor in packed data, with padding."""
        return dict(zip(self.entries, data.split(self.sizes), strict=True)) if self.entries else {}

    def tensors(self, data: Tensor) -> dict[str, Tensor]:
        """Return the tensors in packed data, by name: views, except for pixels."""
        found = {}
        for (entry, part), size in zip(self.split(data).items(), self.sizes, strict=True):
            values = part if size == entry.nbytes else part[: entry.nbytes]
            values = pixels_of(values) if entry.pixels else values.view(getattr(torch, entry.dtype))
            found[entry.name] = values.view(entry.shape)
        return found


make_layout = lru_cache(maxsize=256)(Layout)  # most streams share a few layouts


def pixels_of(data: Tensor) -> Tensor:
    """Return k/255 for every byte k."""
    return data.float().div(255)


def to_pixels(entry: Entry, data: Tensor) -> tuple[Entry, Tensor]:
    """Return an entry and its bytes, as pixels if this does not change a bit. Recent images are most of many states."""
    if entry.dtype != "float32" or entry.pixels or len(entry.shape) != 4:
        return entry, data
    values = data[: entry.nbytes].view(torch.float32)
    pixels = (values * 255).round().clamp(0, 255).nan_to_num().to(torch.uint8)
    if not pixels_of(pixels).view(torch.int32).equal(values.view(torch.int32)):
        return entry, data
    return entry._replace(pixels=True), torch.nn.functional.pad(pixels, (0, -len(pixels) % ALIGNMENT))


@dataclass(frozen=True)
class PackedState:
    """The state of one stream.

    Attributes:
        layout: its tensors.
        data: their bytes, uint8.
        plain: what is not a tensor, as JSON.
    """

    layout: Layout
    data: Tensor
    plain: bytes

    @classmethod
    @torch.no_grad()
    def pack(cls, tensors: Mapping[str, Tensor], plain: Mapping[str, Any], device: torch.device) -> PackedState:
        """Return a copy of a state on a device."""
        entries = [Entry(name, str(value.dtype)[6:], tuple(value.shape)) for name, value in tensors.items()]
        layout = make_layout(tuple(entries))
        data = torch.zeros(sum(layout.sizes), dtype=torch.uint8, device=device)
        if tensors:
            torch._foreach_copy_(list(layout.tensors(data).values()), list(tensors.values()))
        return cls(layout, data, json.dumps(plain).encode())

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.data.numel() + len(self.plain)

    def tensors(self, device: torch.device) -> dict[str, Tensor]:
        """Return the tensors by name. They may be views of ``data``."""
        if any(entry.pixels for entry in self.layout.entries):  # a GPU divides with other rounding
            return {name: value.to(device) for name, value in self.layout.tensors(self.data).items()}
        return self.layout.tensors(self.data.to(device))

    def without(self, initial: PackedState) -> PackedState:
        """Return a copy in host memory that contains only what differs from the initial state in some bit."""
        before, now = initial.layout.split(initial.data), self.layout.split(self.data.cpu())
        moved = {entry: part for entry, part in now.items() if entry not in before or not part.equal(before[entry])}
        kept = dict(to_pixels(*item) for item in moved.items())
        usual = json.loads(initial.plain)
        plain = {key: value for key, value in json.loads(self.plain).items() if value != usual[key]}
        data = torch.cat([initial.data[:0], *kept.values()])
        return PackedState(make_layout(tuple(kept)), data, json.dumps(plain).encode())

    # --- files ---------------------------------------------------------------------------------------------------

    def save(self, path: Path, stream: str, owner: str) -> None:
        """Write a state to a file, which is complete or does not exist.

        Args:
            path: the file.
            stream: name of the stream.
            owner: hash of what the state belongs to.

        Raises:
            DataError: the disk is full, or the folder is not writable.
        """
        text = json.dumps([FORMAT, stream, owner, self.layout.entries, self.plain.decode()])
        save_checkpoint({"text": text, "data": self.data, "sha256": _sha256(text, self.data)}, path)

    @classmethod
    def load(cls, path: Path, stream: str, owner: str) -> PackedState:
        """Read a state, with its tensors in host memory.

        Raises:
            DataError: the file is missing or damaged, or belongs to something else.
        """
        content = read_torch_file(path)
        try:
            text, data = content["text"], content["data"]
            intact = content["sha256"] == _sha256(text, data)
            version, name, given, entries, plain = json.loads(text)
            layout = make_layout(
                tuple(Entry(each, dtype, tuple(shape), pixels) for each, dtype, shape, pixels in entries)
            )
        except (TypeError, ValueError, KeyError, AttributeError, RuntimeError):
            intact = False
        if not intact or version != FORMAT or name != stream:
            raise DataError(f"{path} is damaged, or is not the state of this stream.")
        if given != owner:
            raise DataError(f"{path} was written with another model, method, setting or seed.")
        return cls(layout, data, plain.encode())


def _sha256(text: str, data: Tensor) -> str:
    return hashlib.sha256(text.encode() + data.numpy().tobytes()).hexdigest()
