"""Frost on the pane: real photographs of it, found, cut and laid over the images."""

from __future__ import annotations

import importlib.util
import math
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from driftlaw.corruptions.linear import windows
from driftlaw.corruptions.registry import Numbers, is_large
from driftlaw.corruptions.rng import Draws
from driftlaw.paths import ASSETS, data_dir

# The original knows six photographs and draws one of the first five.
_NAMES = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")
_SCALE = 5


def frost(images: Tensor, numbers: Numbers, draws: Draws) -> Tensor:
    """Mix the picture with a random cut of a random photograph of frost.

    Small images take photographs scaled by 0.2, which come with the package. Large ones take the full-size photographs
    where they are found (the folder ``frost`` of the data folder, or an installed ``imagecorruptions``), else the small
    ones enlarged five times: softer than the original's.
    """
    image_share, frost_share = numbers
    return images * image_share + _cuts(images, draws) * frost_share


def _cuts(images: Tensor, draws: Draws) -> Tensor:
    height, width = images.shape[-2:]
    flat, sizes = _table(height, width, images.device)
    starts, areas, tall, wide = sizes[:, draws.below("photograph", torch.tensor(len(_NAMES), device=images.device))]
    top = draws.below("top", (tall - height).clamp(min=1))
    left = draws.below("left", (wide - width).clamp(min=1))
    rows = torch.arange(height, device=images.device)
    channels = torch.arange(3, device=images.device)[:, None]
    first = (starts + top * wide + left)[:, None, None]
    places = first + channels * areas[:, None, None] + rows * wide[:, None, None]
    return windows(flat, width).index_select(0, places.view(-1)).view(images.shape)


@lru_cache(maxsize=4)
def _table(height: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return all photographs as one flat float32 tensor, and (start, area, height, width) of each, int64 (4, 5)."""
    photographs = _large_photographs() if is_large(height, width) else small_photographs()
    planes = [_covering(photograph, height, width).transpose(2, 0, 1) for photograph in photographs]
    ends = np.cumsum([plane.size for plane in planes])
    sizes = [
        [end - p.size, p.shape[1] * p.shape[2], p.shape[1], p.shape[2]] for end, p in zip(ends, planes, strict=True)
    ]
    flat = np.concatenate([plane.reshape(-1) for plane in planes]).astype(np.float32)
    return torch.from_numpy(flat).to(device), torch.tensor(sizes, device=device).mT.contiguous()


def _covering(photograph: np.ndarray, height: int, width: int) -> np.ndarray:
    """Return the photograph, enlarged where the image is larger than it."""
    factor = max(height / photograph.shape[0], width / photograph.shape[1])
    if factor <= 1:
        return photograph
    size = (math.ceil(photograph.shape[1] * factor), math.ceil(photograph.shape[0] * factor))
    return np.asarray(Image.fromarray(photograph).resize(size, Image.Resampling.BILINEAR))


@lru_cache(maxsize=1)
def small_photographs() -> list[np.ndarray]:
    """Return the embedded photographs, uint8 (h, w, 3), every fifth pixel of the originals."""
    return [_read(ASSETS / "frost" / Path(name).with_suffix(".png").name) for name in _NAMES]


def _large_photographs() -> list[np.ndarray]:
    for folder in _large_folders():
        if all((folder / name).is_file() for name in _NAMES):
            return [_read(folder / name) for name in _NAMES]
    return [_enlarged(photograph) for photograph in small_photographs()]


def _large_folders() -> list[Path]:
    folders = [data_dir() / "frost"]
    package = importlib.util.find_spec("imagecorruptions")
    if package is not None and package.submodule_search_locations:
        folders += [Path(place) / "frost" for place in package.submodule_search_locations]
    return folders


def _enlarged(photograph: np.ndarray) -> np.ndarray:
    size = (photograph.shape[1] * _SCALE, photograph.shape[0] * _SCALE)
    return np.asarray(Image.fromarray(photograph).resize(size, Image.Resampling.BICUBIC))


def _read(path: Path) -> np.ndarray:
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB"))
