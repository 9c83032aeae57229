"""Search for ImageNet's class folders in the data directory."""

import os
import re
from pathlib import Path

NUM_CLASSES = 1000
_SPLIT_FOLDERS = {"test": ("val", "validation", ""), "train": ("train",)}
_WNID = re.compile(r"n\d{8}")


def find_imagenet(folder: Path, split: str) -> Path | None:
    """Return the folder with the class folders of a split, in ``folder`` or one level down; ``imagenet`` is first."""
    children = folder.iterdir() if os.path.isdir(folder) else ()
    others = sorted(
        child
        for child in children
        if child.is_dir() and not child.name.startswith(".") and child.name not in ("imagenet", "train")
    )
    candidates = (parent / name for parent in (folder / "imagenet", folder, *others) for name in _SPLIT_FOLDERS[split])
    return next((path for path in candidates if has_imagenet_classes(path)), None)


def has_imagenet_classes(folder: Path) -> bool:
    """Return True if a folder has 1,000 class folders, named by wnid (n01440764) or by class index (0000 to 0999).

    In both cases the sorted names are in the order of the class indices.
    """
    entries = os.scandir(folder) if os.path.isdir(folder) else ()
    names = sorted(entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir())
    by_index = [f"{number:04d}" for number in range(NUM_CLASSES)]
    return names == by_index or (len(names) == NUM_CLASSES and all(map(_WNID.fullmatch, names)))
