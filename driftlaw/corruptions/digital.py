"""Digital processing: contrast, saturation, elastic transform and pixelation."""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from driftlaw.corruptions.linear import gaussian_filter, quantize, reflect_index
from driftlaw.corruptions.registry import Parameters
from driftlaw.corruptions.rng import CounterRNG

_RESIZE_BITS = 22


def contrast(images: Tensor, parameters: Parameters, rng: CounterRNG) -> Tensor:
    """Scale every channel towards its mean over the image."""
    (factor,) = parameters
    means = images.mean((2, 3), keepdim=True, dtype=torch.float64)
    return (images - means) * factor + means


def saturate(images: Tensor, parameters: Parameters, rng: CounterRNG) -> Tensor:
    """Scale and shift the saturation of HSV. A gray pixel has the hue of red."""
    factor, added = parameters
    value, darkest = images.amax(1, keepdim=True), images.amin(1, keepdim=True)
    spread = value - darkest
    saturation = (spread / value.clamp(min=2**-10) * factor + added).clamp_(0, 1)
    gray_depth = torch.tensor([0.0, 1.0, 1.0], device=images.device).view(1, 3, 1, 1)
    depth = torch.where(spread > 0, (value - images) / spread.clamp(min=2**-10), gray_depth)
    return value - value * saturation * depth


def pixelate(images: Tensor, parameters: Parameters, rng: CounterRNG) -> Tensor:
    """Downsample with a box filter and upsample again, in whole gray levels as Pillow does."""
    (factor,) = parameters
    height, width = images.shape[-2:]
    low, short = max(1, int(height * factor)), max(1, int(width * factor))
    pixels = images.round().to(torch.float64)
    for rows, columns in (((height, low), (width, short)), ((low, height), (short, width))):
        pixels = (pixels @ box_matrix(*columns, images.device).mT).add_(0.5).floor_()
        pixels = (box_matrix(*rows, images.device) @ pixels).add_(0.5).floor_()
    return pixels


@lru_cache(maxsize=64)
def box_matrix(source: int, target: int, device: torch.device) -> Tensor:
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
    return quantize(torch.from_numpy(matrix), _RESIZE_BITS).to(device)


def elastic_transform(images: Tensor, parameters: Parameters, rng: CounterRNG) -> Tensor:
    """Apply a random affine map given by three corners of a square, then shift every pixel by a smooth random field."""
    amplitude, smoothing, affine_reach = parameters
    height, width = images.shape[-2:]
    sizes = torch.tensor([width, height], dtype=torch.float32, device=images.device).view(2, 1, 1)
    # The affine map mirrors about the centres of edge pixels, the shifts mirror about the edge of the image.
    coordinates = _affine_coordinates(height, width, affine_reach, rng)
    grid = coordinates.mul_(2 / (sizes - 1).clamp(min=1)).sub_(1).permute(0, 2, 3, 1)  # −1 to 1 from edge to edge
    warped = grid_sample(images, grid, padding_mode="reflection", align_corners=True)
    if amplitude == 0:
        return warped
    shifts = rng.uniform("shifts", 2 * height * width).mul_(2).sub_(1).view(-1, 2, height, width)
    # Random numbers have 16 bits, so weights can have 18 bits per axis; amplitudes of hundreds of pixels need them.
    shifts = gaussian_filter(shifts, smoothing, 3.0, reflect_index, bits=18).to(torch.float32).mul_(amplitude)
    coordinates = shifts.add_(_pixel_coordinates(height, width, images.device)).add_(0.5)
    grid = coordinates.mul_(2 / sizes).sub_(1).permute(0, 2, 3, 1)
    return grid_sample(warped, grid, padding_mode="reflection", align_corners=False)


@lru_cache(maxsize=8)
def _pixel_coordinates(height: int, width: int, device: torch.device) -> Tensor:
    """Return column and row of every pixel, float32 (2, h, w)."""
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return torch.stack([columns, rows]).to(torch.float32).to(device)


def _affine_coordinates(height: int, width: int, reach: float, rng: CounterRNG) -> Tensor:
    """Return the column and row each pixel is sampled from if three corners move by up to ``reach``, (n, 2, h, w).

    The corners are (cx+s, cy+s), (cx+s, cy−s) and (cx−s, cy−s), where s is a third of the shorter side. The map that
    takes the moved corners back is computed with Cramer's rule.
    """
    centre_x, centre_y, side = width // 2, height // 2, min(height, width) // 3
    moves = rng.uniform("corners", 6).to(torch.float64).mul_(2 * reach).sub_(reach)
    x0, y0, x1, y1, x2, y2 = moves.unbind(1)
    x0, y0, x1, y1, x2, y2 = x0 + side, y0 + side, x1 + side, y1 - side, x2 - side, y2 - side
    scale = 2 * side / ((x0 - x1) * (y1 - y2) - (y0 - y1) * (x1 - x2))
    by_column = torch.stack([(y1 - y0) * scale, (y1 - y2) * scale], 1)
    by_row = torch.stack([(x0 - x1) * scale, (x2 - x1) * scale], 1)
    origin = torch.tensor([centre_x + side, centre_y - side], device=rng.device)
    start = origin - by_column * (centre_x + x1)[:, None] - by_row * (centre_y + y1)[:, None]
    by_column, by_row, start = (part.to(torch.float32)[:, :, None, None] for part in (by_column, by_row, start))
    pixels = _pixel_coordinates(height, width, rng.device)
    return pixels[0] * by_column + (pixels[1, :, :1] * by_row + start)
