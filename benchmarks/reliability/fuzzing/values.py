"""Strategies for unusual values, and functions that damage bytes and nested data."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from benchmarks.reliability.fuzzing.checker import Draw

INFINITY, NAN = float("inf"), float("nan")
TEXTS = (
    "",
    " ",
    "law",
    "0",
    "-1",
    "nan",
    "..",
    "/nowhere",
    "a\x00b",
    "\x1b[31m",
    "[red]",
    "=1+1",
    "\ud800",
    "é" * 300,
    "💥",
)
NUMBERS = (0, 1, -1, 3, 2**31, 2**40, 2**63, -(2**63), 10**400, 0.0, -0.5, 0.3, 1e-320, 1e308, INFINITY, -INFINITY, NAN)
JSON_VALUES = (None, True, False, *NUMBERS, *TEXTS, [], [[]], {}, {"a": 1}, [1, "a"], [None], {"": {}})
OBJECTS = (
    np.int64(3), np.float32("nan"), np.bool_(True), np.array([1, 2]), torch.tensor(1.0), torch.tensor([1, 2]),
    torch.zeros(0), torch.tensor(1j), b"bytes", object(), int, (0.5, 0.5, 0.5), {1, 2}, 1j, print, range(3),
)  # fmt: skip

json_values = st.sampled_from(JSON_VALUES) | st.integers() | st.floats() | st.text(max_size=8)
"""Values that a JSON or TOML file may contain, most of them unusual."""
any_values = json_values | st.sampled_from(OBJECTS)
"""Values that a caller in Python may pass."""
seeds = st.sampled_from((0, 1, 7)) | any_values
small_floats = st.floats(0, 1, width=32)


def mostly(draw: Draw, usual: Any, unusual: Any) -> Any:
    """Draw from the strategy ``usual``, in one of six cases from ``unusual``."""
    return draw(unusual if draw(st.sampled_from((False,) * 5 + (True,))) else usual)


def damage_bytes(draw: Draw, data: bytes) -> bytes:
    """Return a damaged copy of some bytes: cut, flipped, doubled, without a range, or with others in between."""
    kind = draw(st.sampled_from(("same", "empty", "cut", "flip", "remove", "insert", "double", "other")))
    start = draw(st.integers(0, max(0, len(data) - 1)))
    stop = start + draw(st.integers(1, 16))
    changed = {
        "same": data,
        "empty": b"",
        "cut": data[:start],
        "remove": data[:start] + data[stop:],
        "double": data + data,
    }
    if kind in changed:
        return changed[kind]
    if kind == "other":
        return draw(st.binary(max_size=64))
    if kind == "insert":
        return data[:start] + draw(st.binary(min_size=1, max_size=16)) + data[start:]
    flipped = bytearray(data)
    for position in range(start, min(stop, len(data))):
        flipped[position] ^= draw(st.integers(1, 255))
    return bytes(flipped)


def damage_tree(draw: Draw, tree: Any, values: Any = json_values) -> Any:
    """Return a copy of nested dicts and lists in which one to three entries were removed, replaced or added."""
    tree = copy.deepcopy(tree)
    for _ in range(draw(st.integers(1, 3))):
        containers = list(_containers(tree))
        if not containers:
            return tree
        container = draw(st.sampled_from(range(len(containers))))
        entries = containers[container]
        keys = list(entries) if isinstance(entries, dict) else list(range(len(entries)))
        kind = draw(st.sampled_from(("replace", "replace", "remove", "add")))
        if kind == "add" or not keys:
            value = copy.deepcopy(draw(values))
            if isinstance(entries, dict):
                entries[draw(st.sampled_from(("new", "", "0", *map(str, keys))))] = value
            else:
                entries.append(value)
            continue
        key = draw(st.sampled_from(keys))
        if kind == "remove":
            del entries[key]
        else:
            entries[key] = copy.deepcopy(draw(values))
    return tree


def _containers(tree: Any) -> Iterator[Any]:
    if isinstance(tree, dict | list):
        yield tree
        for value in tree.values() if isinstance(tree, dict) else tree:
            yield from _containers(value)
