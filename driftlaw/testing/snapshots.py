"""Copies of the state of an adapter or model, compared bit for bit."""

import copy
import io
from collections import deque
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from driftlaw.base import Adapter

_MODULE_ATTRIBUTES = frozenset(vars(nn.Module())) - {"training"}
_IGNORED = _MODULE_ATTRIBUTES | {"_initial_state"}  # the copy that reset() restores
_CONTAINERS = (list, tuple, set, frozenset, deque)
_CODE = (type, FunctionType, BuiltinFunctionType, MethodType, ModuleType)


def state_of(module: nn.Module) -> dict[str, Any]:
    """Return a copy of the state of an adapter or model: state dict, buffers, train modes and requires_grad flags."""
    return {
        "saved": copy.deepcopy(dict(module.state_dict())),
        "buffers": {name: value.clone() for name, value in module.named_buffers()},
        "modes": {name: child.training for name, child in module.named_modules()},
        "requires_grad": {name: value.requires_grad for name, value in module.named_parameters()},
    }


def attributes_of(adapter: Adapter) -> dict[str, Any]:
    """Return a copy of plain attributes (numbers, text, tensors, containers of these) outside registered state."""
    return {
        f"{path}.{name}".lstrip("."): copy.deepcopy(value)
        for path, module in adapter.named_modules()
        for name, value in vars(module).items()
        if name not in _IGNORED and _is_plain(value)
    }


def differences(one: Any, other: Any, path: str = "") -> list[str]:
    """Return the paths at which two nested structures differ in at least one bit."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        keys = list(dict.fromkeys([*one, *other]))
        children = [(f"{path}.{key}".lstrip("."), one.get(key), other.get(key)) for key in keys]
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        children = [(f"{path}.{index}", *pair) for index, pair in enumerate(zip(one, other, strict=True))]
    else:
        return [] if same(one, other) else [path or "the value"]
    return [difference for name, left, right in children for difference in differences(left, right, name)]


def same(one: Any, other: Any) -> bool:
    """Return True if two values are equal bit for bit; NaN equals itself."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if not (isinstance(one, Tensor) and isinstance(other, Tensor)):
        return type(one) is type(other) and bool(one == other)
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(_bytes(one), _bytes(other))


def saved_bytes(adapter: Adapter) -> bytes:
    """Return the bytes of a file with the adapter's state."""
    file = io.BytesIO()
    torch.save(adapter.state_dict(), file)
    return file.getvalue()


def object_count(adapter: Adapter) -> dict[str, int]:
    """Return the number of objects reachable from each attribute of the adapter, counting tensor elements."""
    kept = {"_parameters", "_buffers", "_modules"}
    attributes = {name: value for name, value in vars(adapter).items() if name not in _MODULE_ATTRIBUTES - kept}
    return {name: sum(_count(item) for item in _walk(value)) for name, value in attributes.items()}


def attributes_holding_graphs(adapter: Adapter) -> list[str]:
    """Return the names of attributes that hold a tensor with an autograd graph."""
    return [
        name
        for name, value in vars(adapter).items()
        if any(isinstance(item, Tensor) and item.grad_fn is not None for item in _walk(value))
    ]


def _bytes(value: Tensor) -> Tensor:
    return value.detach().cpu().contiguous().flatten().view(torch.uint8)


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(_is_plain(entry) for entry in value.values())
    if isinstance(value, _CONTAINERS):
        return all(_is_plain(entry) for entry in value)
    return value is None or isinstance(value, bool | int | float | str | Tensor | np.ndarray | np.generic)


def _count(item: Any) -> int:
    if isinstance(item, Tensor):
        return item.numel()
    if isinstance(item, np.ndarray):
        return item.size
    # The length of a container counts too: a list may hold the same object many times, which is walked only once.
    return 1 + len(item) if isinstance(item, (str, bytes, Mapping, *_CONTAINERS)) else 1


def _walk(root: Any) -> Iterator[Any]:
    """Yield every object that can be reached from ``root`` once; functions, classes and modules are skipped."""
    seen: set[int] = set()
    pending = [root]
    while pending:
        item = pending.pop()
        if id(item) in seen or isinstance(item, _CODE):
            continue
        seen.add(id(item))
        yield item
        pending.extend(_children(item))


def _children(item: Any) -> list[Any]:
    if isinstance(item, Tensor):
        return [item.grad] if item.is_leaf and item.grad is not None else []  # torch warns about .grad of a non-leaf
    if isinstance(item, np.ndarray | str | bytes):
        return []
    children: list[Any] = list(vars(item).values()) if hasattr(item, "__dict__") else []
    if isinstance(item, Mapping):
        children += [*item.keys(), *item.values()]
    elif isinstance(item, _CONTAINERS):
        children += list(item)
    return children
