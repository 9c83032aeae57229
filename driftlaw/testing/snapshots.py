"""What an adapter or a network is at a moment, so that two moments can be compared bit for bit."""

from __future__ import annotations

import copy
import io
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from driftlaw.base import Adapter

_MODULE_PARTS = frozenset(vars(nn.Module())) - {"training"}
_CONTAINERS = (list, tuple, set, frozenset, deque)
_CODE = (type, FunctionType, BuiltinFunctionType, MethodType, ModuleType)


def state_of(adapter: Adapter) -> dict[str, Any]:
    """Return a copy of all registered state: what is saved, buffers that are not, modes and what learns."""
    return {
        "saved": copy.deepcopy(dict(adapter.state_dict())),
        "buffers": {name: value.clone() for name, value in adapter.named_buffers()},
        "modes": {name: module.training for name, module in adapter.named_modules()},
        "learning": {name: value.requires_grad for name, value in adapter.named_parameters()},
    }


def attributes_of(adapter: Adapter) -> dict[str, Any]:
    """Return a copy of the plain values (numbers, text, tensors, containers of them) held outside registered state."""
    found = {}
    for path, module in adapter.named_modules():
        for name, value in vars(module).items():
            if name not in _MODULE_PARTS and name != "_birth" and _is_plain(value):
                found[f"{path}.{name}".lstrip(".")] = copy.deepcopy(value)
    return found


def network_of(model: nn.Module) -> dict[str, Any]:
    """Return a copy of all that a caller can see of a network: values, gradients, modes and what learns."""
    return {
        "values": {name: value.detach().clone() for name, value in _tensors(model)},
        "gradients": {name: copy.deepcopy(value.grad) for name, value in model.named_parameters()},
        "learning": {name: value.requires_grad for name, value in model.named_parameters()},
        "modes": {name: module.training for name, module in model.named_modules()},
    }


def moved(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the names of the tensors whose values differ between two ``network_of``."""
    return [name for name in before["values"] if not same(before["values"][name], after["values"].get(name))]


def differences(one: Any, other: Any, path: str = "") -> list[str]:
    """Return the paths at which two snapshots differ by a bit."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        keys = list(dict.fromkeys([*one, *other]))
        below = [(f"{path}.{key}".lstrip("."), one.get(key), other.get(key)) for key in keys]
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        below = [(f"{path}.{place}", *pair) for place, pair in enumerate(zip(one, other, strict=True))]
    else:
        return [] if same(one, other) else [path or "the value"]
    return [place for name, left, right in below for place in differences(left, right, name)]


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal to the bit; NaN equals itself."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if not (isinstance(one, Tensor) and isinstance(other, Tensor)):
        return type(one) is type(other) and bool(one == other)
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return torch.equal(_bits(one), _bits(other))


def named(paths: Sequence[str], most: int = 4) -> str:
    """Return the first few paths as text for a reason."""
    more = f" and {len(paths) - most} more" if len(paths) > most else ""
    return ", ".join(paths[:most]) + more


def saved_bytes(adapter: Adapter) -> bytes:
    """Return the adapter's state as the bytes of a file."""
    file = io.BytesIO()
    torch.save(adapter.state_dict(), file)
    return file.getvalue()


def saved_tensors(adapter: Adapter) -> tuple[int, int]:
    """Return how many tensors the adapter's state holds, and their bytes."""
    tensors = [value for value in _walk(dict(adapter.state_dict())) if isinstance(value, Tensor)]
    return len(tensors), sum(value.numel() * value.element_size() for value in tensors)


def weight(adapter: Adapter) -> dict[str, int]:
    """Return how many things hang on each attribute of the adapter, the elements of tensors and arrays counted."""
    parts = {name: value for name, value in vars(adapter).items() if name not in _MODULE_PARTS}
    parts |= {name: vars(adapter)[name] for name in ("_parameters", "_buffers", "_modules")}
    return {name: sum(_count(thing) for thing in _walk(value)) for name, value in parts.items()}


def kept_graphs(adapter: Adapter) -> list[str]:
    """Return the attributes of the adapter that hold a tensor with a graph of past steps behind it."""
    return [
        name
        for name, value in vars(adapter).items()
        if any(isinstance(thing, Tensor) and thing.grad_fn is not None for thing in _walk(value))
    ]


def _tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def _bits(value: Tensor) -> Tensor:
    return value.detach().cpu().contiguous().flatten().view(torch.uint8)


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(_is_plain(entry) for entry in value.values())
    if isinstance(value, _CONTAINERS):
        return all(_is_plain(entry) for entry in value)
    return value is None or isinstance(value, bool | int | float | str | Tensor | np.ndarray | np.generic)


def _count(thing: Any) -> int:
    if isinstance(thing, Tensor):
        return thing.numel()
    if isinstance(thing, np.ndarray):
        return thing.size
    # A container's length counts beside its entries: a list of one and the same number holds one thing, many times.
    return 1 + len(thing) if isinstance(thing, (str, bytes, Mapping, *_CONTAINERS)) else 1


def _walk(root: Any) -> Iterator[Any]:
    """Yield everything that can be reached from ``root``, each thing once; code is not followed."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, _CODE):
            continue
        seen.add(id(thing))
        yield thing
        waiting.extend(_below(thing))


def _below(thing: Any) -> list[Any]:
    if isinstance(thing, Tensor):
        return [thing.grad] if thing.is_leaf and thing.grad is not None else []  # torch warns where it is no leaf
    if isinstance(thing, np.ndarray | str | bytes):
        return []
    entries: list[Any] = list(vars(thing).values()) if hasattr(thing, "__dict__") else []
    if isinstance(thing, Mapping):
        entries += [*thing.keys(), *thing.values()]
    elif isinstance(thing, _CONTAINERS):
        entries += list(thing)
    return entries
