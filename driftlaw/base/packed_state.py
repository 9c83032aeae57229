"""Packed states of streams: all tensors of a state in one block of bytes, in memory and in files."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from driftlaw.checkpoints import save_checkpoint
from driftlaw.errors import DataError
from driftlaw.torch_files import read_torch_file

Entry = tuple[str, str, tuple[int, ...], int]
"""A tensor: name, dtype, shape, bytes per value. If float32 has one byte per value, a byte k is the pixel k/255."""
share = lru_cache(maxsize=256)(tuple[Entry, ...])  # most streams have the same entries


class PackedState(NamedTuple):
    """The state of one stream: its tensors, their bytes (uint8), and what is not a tensor as JSON.

    Tensors with more bytes per value come first, so that each starts at a multiple of them.
    """

    entries: tuple[Entry, ...]
    data: Tensor
    plain: bytes

    @classmethod
    @torch.no_grad()
    def pack(cls, tensors: Mapping[str, Tensor], plain: Mapping[str, Any], device: torch.device) -> PackedState:
        """Return a copy of a state on a device."""
        named = sorted(tensors.items(), key=lambda item: -item[1].element_size())
        entries = tuple((name, str(value.dtype)[6:], tuple(value.shape), value.element_size()) for name, value in named)
        data = torch.empty(sum(value.nbytes for _, value in named), dtype=torch.uint8, device=device)
        state = cls(share(entries), data, json.dumps(plain).encode())
        if named:
            torch._foreach_copy_(list(state.tensors(device).values()), [value for _, value in named])
        return state

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.data.numel() + len(self.plain)

    def split(self) -> dict[Entry, Tensor]:
        """Return the bytes of every tensor."""
        sizes = [bytes_per_value * math.prod(shape) for _, _, shape, bytes_per_value in self.entries]
        return dict(zip(self.entries, self.data.split(sizes), strict=True)) if sizes else {}

    def tensors(self, device: torch.device) -> dict[str, Tensor]:
        """Return the tensors by name; views, if they are on the device."""
        found = {}
        for (name, dtype, shape, size), part in self._replace(data=self.data.to(device)).split().items():
            if (dtype, size) == ("float32", 1):
                found[name] = part.cpu().float().div(255).view(shape).to(device)  # a GPU divides with other rounding
            else:
                found[name] = part.view(getattr(torch, dtype)).view(shape)
        return found

    def without(self, initial: PackedState) -> PackedState:
        """Return a copy in host memory that contains only what differs from the initial state in some bit."""
        before, kept = initial.split(), {}
        for entry, part in self._replace(data=self.data.cpu()).split().items():
            if entry in before and part.equal(before[entry]):
                continue
            if entry[1] == "float32" and (len(entry[2]), entry[3]) == (4, 4):  # recent images are most of many states
                pixels = (part.view(torch.float32) * 255).round().clamp(0, 255).nan_to_num().to(torch.uint8)
                if pixels.float().div(255).view(torch.uint8).equal(part):
                    entry, part = (*entry[:3], 1), pixels
            kept[entry] = part
        entries = sorted(kept, key=lambda entry: -entry[3])
        usual = json.loads(initial.plain)
        plain = {key: value for key, value in json.loads(self.plain).items() if value != usual[key]}
        data = torch.cat([initial.data[:0], *(kept[entry] for entry in entries)])
        return PackedState(share(tuple(entries)), data, json.dumps(plain).encode())

    def save(self, path: Path, stream: str, owner: str) -> None:
        """Write the state of a stream to a file, which is complete or does not exist; ``owner`` names its pool."""
        text = json.dumps([self.entries, self.plain.decode()])
        save_checkpoint({"text": text, "data": self.data, "sha256": _sha256(stream, owner, text, self.data)}, path)

    @classmethod
    def load(cls, path: Path, stream: str, owner: str) -> PackedState:
        """Read what ``save`` wrote; raises DataError if the file is damaged or was written for something else."""
        try:
            content = read_torch_file(path)
            text, data = content["text"], content["data"]
            if content["sha256"] != _sha256(stream, owner, text, data):
                raise DataError("The file does not match its checksum.")
            entries, plain = json.loads(text)
        except (DataError, TypeError, ValueError, KeyError, AttributeError, RuntimeError) as error:
            raise DataError(
                f"The state of stream '{stream}' cannot be read. {path} is damaged, or was written for another stream, "
                "model, method, setting or seed. Other streams are not affected. Restore the file, or call "
                f"pool.reset('{stream}') to start from the source model."
            ) from error
        return cls(share(tuple((*entry[:2], tuple(entry[2]), entry[3]) for entry in entries)), data, plain.encode())


def _sha256(stream: str, owner: str, text: str, data: Tensor) -> str:
    return hashlib.sha256(json.dumps([stream, owner, text]).encode() + data.numpy().tobytes()).hexdigest()
