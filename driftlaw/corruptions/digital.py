"""What processing does to a picture: contrast, saturation, elastic warp, pixelation."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from driftlaw.corruptions.linear import gaussian, on_grid, reflected
from driftlaw.corruptions.registry import Numbers
from driftlaw.corruptions.rng import Draws

_RESIZE_BITS = 22


def contrast(images: Tensor, numbers: Numbers, draws: Draws) -> Tensor:
    """Draw every channel towards its mean over the image."""
    (factor,) = numbers
    means = images.mean((2, 3), keepdim=True, dtype=torch.float64)
    return (images - means) * factor + means


def saturate(images: Tensor, numbers: Numbers, draws: Draws) -> Tensor:
    """Scale and raise the saturation of HSV; a grey pixel has the hue of red."""
    factor, added = numbers
    value, darkest = images.amax(1, keepdim=True), images.amin(1, keepdim=True)
    spread = value - darkest
    saturation = (spread / value.clamp(min=2**-10) * factor + added).clamp_(0, 1)
    grey_depth = torch.tensor([0.0, 1.0, 1.0], device=images.device).view(1, 3, 1, 1)
    depth = torch.where(spread > 0, (value - images) / spread.clamp(min=2**-10), grey_depth)
    return value - value * saturation * depth


def pixelate(images: Tensor, numbers: Numbers, draws: Draws) -> Tensor:
    """Shrink the picture by box resampling and enlarge it again, in whole grey levels as Pillow does."""
    (factor,) = numbers
    height, width = images.shape[-2:]
    low, short = max(1, int(height * factor)), max(1, int(width * factor))
    pixels = images.round().to(torch.float64)
    for rows, columns in (((height, low), (width, short)), ((low, height), (short, width))):
        pixels = _rounded(pixels @ box_rows(*columns, images.device).mT)
        pixels = _rounded(box_rows(*rows, images.device) @ pixels)
    return pixels


def _rounded(values: Tensor) -> Tensor:
    return values.add_(0.5).floor_()


@lru_cache(maxsize=64)
def box_rows(source: int, target: int, device: torch.device) -> Tensor:
    """Return the (target, source) matrix of Pillow's box resampling, weights in multiples of 2⁻²²."""
    scale = source / target
    reach = 0.5 * max(scale, 1.0)
    matrix = np.zeros((target, source))
    for row in range(target):
        centre = (row + 0.5) * scale
        first, last = max(int(centre - reach + 0.5), 0), min(int(centre + reach + 0.5), source)
        distance = (np.arange(first, last) - centre + 0.5) / max(scale, 1.0)
        weights = ((distance > -0.5) & (distance <= 0.5)).astype(np.float64)
        matrix[row, first:last] = weights / weights.sum()
    return on_grid(torch.from_numpy(matrix), _RESIZE_BITS).to(device)


def elastic_transform(images: Tensor, numbers: Numbers, draws: Draws) -> Tensor:
    """Pull three corners of a square to random places, then shift every pixel by a smooth random field."""
    amplitude, smoothing, affine_reach = numbers
    height, width = images.shape[-2:]
    sizes = torch.tensor([width, height], dtype=torch.float32, device=images.device).view(2, 1, 1)
    # Outside the frame: mirrored about the centres of the edge pixels, for the shifts about the edge itself.
    places = _affine_places(height, width, affine_reach, draws)
    warped = _sampled(images, places.mul_(2 / (sizes - 1).clamp(min=1)).sub_(1), True)
    if amplitude == 0:
        return warped
    shifts = draws.uniform("shifts", 2 * height * width).mul_(2).sub_(1).view(-1, 2, height, width)
    # The draws have 16 bits, so the weights may have 18 each way; an amplitude of hundreds of pixels asks for them.
    shifts = gaussian(shifts, smoothing, 3.0, reflected, bits=18).to(torch.float32).mul_(amplitude)
    places = shifts.add_(_pixel_places(height, width, images.device)).add_(0.5)
    return _sampled(warped, places.mul_(2 / sizes).sub_(1), False)


@lru_cache(maxsize=8)
def _pixel_places(height: int, width: int, device: torch.device) -> Tensor:
    """Return column and row of every pixel, float32 (2, h, w)."""
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return torch.stack([columns, rows]).to(torch.float32).to(device)


def _affine_places(height: int, width: int, reach: float, draws: Draws) -> Tensor:
    """Return column and row that every pixel is taken from when three corners move by up to ``reach``, (n, 2, h, w).

    The corners are (cx+s, cy+s), (cx+s, cy−s) and (cx−s, cy−s) with s a third of the shorter side; the map that takes
    the moved corners back is found by Cramer's rule.
    """
    centre_x, centre_y, side = width // 2, height // 2, min(height, width) // 3
    moves = draws.uniform("corners", 6).to(torch.float64).mul_(2 * reach).sub_(reach)
    x0, y0, x1, y1, x2, y2 = moves.unbind(1)
    x0, y0, x1, y1, x2, y2 = x0 + side, y0 + side, x1 + side, y1 - side, x2 - side, y2 - side
    scale = 2 * side / ((x0 - x1) * (y1 - y2) - (y0 - y1) * (x1 - x2))
    by_column = torch.stack([(y1 - y0) * scale, (y1 - y2) * scale], 1)
    by_row = torch.stack([(x0 - x1) * scale, (x2 - x1) * scale], 1)
    origin = torch.tensor([centre_x + side, centre_y - side], device=draws.device)
    start = origin - by_column * (centre_x + x1)[:, None] - by_row * (centre_y + y1)[:, None]
    by_column, by_row, start = (part.to(torch.float32)[:, :, None, None] for part in (by_column, by_row, start))
    pixels = _pixel_places(height, width, draws.device)
    return pixels[0] * by_column + (pixels[1, :, :1] * by_row + start)


def _sampled(images: Tensor, places: Tensor, about_centres: bool) -> Tensor:
    """Sample linearly at columns and rows (n, 2, h, w), −1 to 1 from edge to edge, and reflected outside."""
    return grid_sample(images, places.permute(0, 2, 3, 1), padding_mode="reflection", align_corners=about_centres)
