"""ImageNet's folders, found wherever they lie under the data folder: a thousand classes by wnid or by their number."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

CLASSES = 1000
_SPLIT_FOLDERS = {"test": ("val", "validation", ""), "train": ("train",)}
_WNID = re.compile(r"n\d{8}")


def find_imagenet(folder: Path, split: str) -> Path | None:
    """Return the folder of a split's class folders: under ``folder``, or one level down; ``imagenet`` goes first."""
    return next((place for place in _candidates(folder, split) if holds_imagenet(place)), None)


def holds_imagenet(folder: Path) -> bool:
    """Return whether a folder has 1,000 class folders, named by wnid or by class number in four digits.

    Sorted, both are in the order of the class numbers: a wnid's place among all thousand is its number, and of the
    numbers none may be missing.
    """
    if not os.path.isdir(folder):
        return False
    names = [entry.name for entry in os.scandir(folder) if not entry.name.startswith(".") and entry.is_dir()]
    if len(names) != CLASSES:
        return False
    numbered = sorted(names) == [f"{number:04d}" for number in range(CLASSES)]
    return numbered or all(_WNID.fullmatch(name) for name in names)


def _candidates(folder: Path, split: str) -> Iterator[Path]:
    children = [child for child in _children(folder) if child.name not in ("imagenet", "train")]
    for place in (folder / "imagenet", folder, *children):
        yield from (place / name for name in _SPLIT_FOLDERS[split])


def _children(folder: Path) -> list[Path]:
    if not os.path.isdir(folder):
        return []
    return sorted(child for child in folder.iterdir() if child.is_dir() and not child.name.startswith("."))
