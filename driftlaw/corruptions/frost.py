"""Frost: blends the images with random crops of real photographs of frost."""

import math
from functools import lru_cache

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from driftlaw.corruptions.linear import sliding_windows
from driftlaw.corruptions.registry import Parameters, is_large
from driftlaw.corruptions.rng import CounterRNG
from driftlaw.paths import ASSETS

# The original code has six photographs and chooses among the first five. The second and the third are the same.
_SMALL = ("frost1.png", "frost2.png", "frost3.png", "frost4.png", "frost5.png")
_FULL_SIZE = ("frost1.webp", "frost2.webp", "frost2.webp", "frost4.jpg", "frost5.jpg")


def frost(images: Tensor, parameters: Parameters, rng: CounterRNG) -> Tensor:
    """Blend the image with a random crop of a random photograph of frost.

    Large images use the original photographs, small images the same photographs scaled by 0.2. A photograph that is
    smaller than the image is enlarged until it covers the image.
    """
    image_share, frost_share = parameters
    height, width = images.shape[-2:]
    flat, sizes = _photograph_table(height, width, images.device)
    starts, areas, tall, wide = sizes[:, rng.randint("photograph", torch.tensor(len(_SMALL), device=images.device))]
    top = rng.randint("top", (tall - height).clamp(min=1))
    left = rng.randint("left", (wide - width).clamp(min=1))
    rows = torch.arange(height, device=images.device)
    channels = torch.arange(3, device=images.device)[:, None]
    first = (starts + top * wide + left)[:, None, None]
    starts_of_rows = first + channels * areas[:, None, None] + rows * wide[:, None, None]
    crops = sliding_windows(flat, width).index_select(0, starts_of_rows.view(-1)).view(images.shape)
    return images * image_share + crops * frost_share


@lru_cache(maxsize=4)
def _photograph_table(height: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return all photographs as one flat float32 tensor, and (start, area, height, width) of each, int64 (4, 5)."""
    planes = []
    for photograph in photographs(full_size=is_large(height, width)):
        factor = max(height / photograph.shape[0], width / photograph.shape[1])
        if factor > 1:
            size = (math.ceil(photograph.shape[1] * factor), math.ceil(photograph.shape[0] * factor))
            photograph = np.asarray(Image.fromarray(photograph).resize(size, Image.Resampling.BILINEAR))
        planes.append(photograph.transpose(2, 0, 1))
    ends = np.cumsum([plane.size for plane in planes])
    sizes = [
        [end - p.size, p.shape[1] * p.shape[2], p.shape[1], p.shape[2]] for end, p in zip(ends, planes, strict=True)
    ]
    flat = np.concatenate([plane.reshape(-1) for plane in planes]).astype(np.float32)
    return torch.from_numpy(flat).to(device), torch.tensor(sizes, device=device).mT.contiguous()


def photographs(*, full_size: bool) -> list[np.ndarray]:
    """Return the original photographs, uint8 (h, w, 3), or every fifth pixel of them, for small images."""
    names = [f"full_size/{name}" for name in _FULL_SIZE] if full_size else _SMALL
    images = []
    for name in names:
        with Image.open(ASSETS / "frost" / name) as image:
            images.append(np.asarray(image.convert("RGB")))
    return images
