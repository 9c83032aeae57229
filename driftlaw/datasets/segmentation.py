"""Segmentation datasets by their folder layout: images with label maps of the same name, CamVid, Cityscapes, ACDC."""

import json
import re
import tomllib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from driftlaw import paths
from driftlaw.datasets.image_files import SUFFIXES
from driftlaw.datasets.image_folder import image_files, natural_key
from driftlaw.datasets.label_maps import NO_CLASS, Decoder, LabelMapImages, decode_colors, decode_indices
from driftlaw.errors import DataError

CLASSES_FILE = "classes.json"
_SPLIT_FOLDERS = {"train": ("train",), "val": ("val",), "test": ("test", "val")}
_TABLES = tomllib.loads((paths.PACKAGE / "datasets" / "label_maps.toml").read_text(encoding="utf-8"))

Size = tuple[int, int] | None
Frames = list[tuple[str, Path, Path]]
"""Sequence, image and label map of every frame, in temporal order."""


def open_label_folder(folder: Path, split: str, size: Size = None) -> LabelMapImages | None:
    """Return the dataset of a folder with ``images/``, ``labels/`` and ``classes.json``; None if it is not one.

    Label maps are PNG files with the names of their images. Sub-folders of ``images/`` are sequences. ``images/`` and
    ``labels/`` may be in ``train/`` and ``test/`` (or ``val/``). ``classes.json`` has ``names`` and ``ignore_index``.

    Raises:
        DataError: A label map is missing, ``classes.json`` is wrong, or the split does not exist.
    """
    parents = [*(folder / name for name in _SPLIT_FOLDERS[split]), folder]
    root = next((path for path in parents if (path / "images").is_dir() and (path / "labels").is_dir()), None)
    if root is None or not (folder / CLASSES_FILE).is_file():
        return None
    if root == folder and split == "train":
        raise DataError(f"{folder} has no sub-folders 'train' and 'test' (or 'val'). Create both, or use split='test'.")
    names, ignored = _read_classes(folder / CLASSES_FILE)
    frames: Frames = []
    for image in sorted(image_files(root / "images"), key=natural_key):
        relative = image.relative_to(root / "images")
        label = (root / "labels" / relative).with_suffix(".png")
        if not label.is_file():
            raise DataError(f"The image {image} has no label map. Expected {label}.")
        frames.append((relative.parent.as_posix() if relative.parent.name else "all", image, label))
    decode = partial(decode_indices, {**dict(enumerate(range(len(names)))), ignored: NO_CLASS})
    origin = "images with label maps of a folder"
    return LabelMapImages(f"folder:{folder}", folder, frames, names, decode, split=split, origin=origin, size=size)


def _read_classes(path: Path) -> tuple[list[str], int]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read as JSON ({error}).") from error
    names = content.get("names") if isinstance(content, dict) else None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or len(names) > NO_CLASS:
        example = '{"names": ["road", "sky"], "ignore_index": 255}'
        raise DataError(f"{path} has no list of at most {NO_CLASS} class names. Expected, for example, {example}.")
    ignored = content.get("ignore_index", NO_CLASS)
    if not isinstance(ignored, int) or not len(names) <= ignored <= NO_CLASS:
        raise DataError(f"{path} has ignore_index {ignored!r}. Expected an integer from {len(names)} to {NO_CLASS}.")
    return names, ignored


def find_label_maps(name: str, data_dir: Path, split: str) -> tuple[Path, str, Frames] | None:
    """Return folder, encoding and frames of a known dataset in the data directory, or None if it is not there.

    The encoding of label maps is ``indices``, ``colors``, ``labelTrainIds`` or ``labelIds``.
    """
    for folder in (data_dir / part for part in _TABLES[name]["folders"]):
        for encoding in ("indices", "colors") if name == "camvid" else ("labelTrainIds", "labelIds"):
            find = {"indices": _camvid_splits, "colors": _camvid_official}.get(encoding)
            frames = find(folder, split) if find else _train_ids(name, folder, split, encoding)
            if frames:
                return folder, encoding, frames
    return None


def load_label_maps(
    name: str, class_names: Sequence[str], data_dir: Path, split: str, size: Size = None
) -> LabelMapImages:
    """Return a dataset of ``label_maps.toml`` from the data directory.

    Raises:
        DataError: It is not there. The message names the expected folders.
    """
    table, result = _TABLES[name], find_label_maps(name, data_dir, split)
    if result is None:
        raise DataError(f"{name} ({split}) was not found in {data_dir}. {table['missing']}")
    folder, encoding, frames = result
    if encoding == "colors":
        colors = {
            (red, green, blue): label for label, group in enumerate(table["colors"]) for red, green, blue in group
        }
        decode: Decoder = partial(decode_colors, {(0, 0, 0): NO_CLASS, **colors})
    elif encoding == "labelIds":
        classes = {number: label for label, number in enumerate(table["label_ids"])}
        decode = partial(decode_indices, dict.fromkeys([*range(max(classes) + 1), NO_CLASS], NO_CLASS) | classes)
    else:
        ignored = dict.fromkeys(table.get("ignored", [NO_CLASS]), NO_CLASS)
        decode = partial(decode_indices, dict(enumerate(range(len(class_names)))) | ignored)
    origin = table["origin"]
    return LabelMapImages(name, folder, frames, class_names, decode, split=split, origin=origin, size=size)


def _camvid_splits(folder: Path, split: str) -> Frames:
    """Folders ``train``, ``val`` and ``test``, with label maps beside the images, or in ``<split>annot``."""
    frames = []
    for path in sorted((folder / split).glob("*.png"), key=natural_key):
        images = [image for suffix in sorted(SUFFIXES - {".png"}) if (image := path.with_suffix(suffix)).is_file()]
        image, label = (images[0], path) if images else (path, folder / f"{split}annot" / path.name)
        if label.is_file():
            frames.append((path.stem.partition("_")[0], image, label))
    return frames


def _camvid_official(folder: Path, split: str) -> Frames:
    """The official folders, divided as in the SegNet tutorial."""
    frames = []
    for label in sorted((folder / "LabeledApproved_full").glob("*_L.png"), key=natural_key):
        if (match := re.fullmatch(r"(\w+?)_f?(\d+)_L", label.stem)) is None:
            continue
        sequence, number = match[1], int(match[2])
        found = "test" if sequence == "Seq05VD" or (sequence == "0001TP" and number >= 8550) else "train"
        if sequence == "0016E5" and 7959 <= number <= 8159:
            found = "val"
        if found == split:
            frames.append((sequence, folder / "701_StillsRaw_full" / f"{label.stem.removesuffix('_L')}.png", label))
    return frames


def _train_ids(name: str, folder: Path, split: str, encoding: str) -> Frames:
    """The official folders of Cityscapes and ACDC; empty unless every image has a label map of this encoding."""
    table, part = _TABLES[name], "train" if split == "train" else "val"
    images, labels, frames = table["image_tag"], table["label_tag"], []
    for condition in table["conditions"]:
        for image in sorted((folder / images / condition / part).glob(f"*/*_{images}.png"), key=natural_key):
            label_name = image.name.replace(images, f"{labels}_{encoding}")
            label = folder / labels / condition / part / image.parent.name / label_name
            if not label.is_file():
                return []
            frames.append((condition or image.parent.name, image, label))
    return frames
