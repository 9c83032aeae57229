"""Exact blurs and resampling: weights on a dyadic grid, so that sums do not depend on their order.

A matrix product may add in a different order for another batch size or device. Here gray levels are multiples of
2⁻¹⁰ and weights are multiples of 2⁻¹⁶. No addition in float64 rounds, and an image gets the same bits in any batch.
"""

import math
from collections import defaultdict
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

WEIGHT_BITS = 16
GRAY_BITS = 10


def quantize(values: Tensor, bits: int) -> Tensor:
    """Return the values rounded to multiples of 2⁻ᵇⁱᵗˢ."""
    scale = 2.0**bits
    return torch.round(values * scale) / scale


def quantize_rows(weights: Tensor, bits: int = WEIGHT_BITS) -> Tensor:
    """Return the weights rounded to multiples of 2⁻ᵇⁱᵗˢ, float64, without changing the sum of a row (last axis).

    The largest weight of a row absorbs the rounding error.
    """
    weights = weights.to(torch.float64)
    snapped = quantize(weights, bits)
    missing = quantize(weights.sum(-1, keepdim=True), bits) - snapped.sum(-1, keepdim=True)
    return snapped.scatter_add(-1, snapped.argmax(-1, keepdim=True), missing)


def apply_separable(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return rows · image · columnsᵀ for every image of (…, h, w), in float64."""
    across = torch.matmul(images.to(torch.float64), columns.mT)
    return torch.matmul(rows, across)


def reflect_index(index: Tensor, size: int) -> Tensor:
    """Return indices folded into [0, size) about the edges of the image: b a | a b c | c b (scipy's 'reflect')."""
    folded = index.remainder(2 * size)
    return torch.minimum(folded, 2 * size - 1 - folded)


def clamp_index(index: Tensor, size: int) -> Tensor:
    """Return indices clamped to the edge pixels: a a | a b c | c c (scipy's 'nearest')."""
    return index.clamp(0, size - 1)


Border = Callable[[Tensor, int], Tensor]


@lru_cache(maxsize=64)
def gaussian_matrix(
    size: int, sigma: float, truncate: float, border: Border, bits: int, device: torch.device
) -> Tensor:
    """Return the (size, size) matrix of a Gaussian blur, truncated at ``truncate`` standard deviations."""
    radius = int(truncate * sigma + 0.5)
    offsets = torch.arange(-radius, radius + 1)
    weights = torch.exp(-0.5 * (offsets.to(torch.float64) / sigma) ** 2)
    sources = border(torch.arange(size)[:, None] + offsets, size)
    matrix = torch.zeros(size, size, dtype=torch.float64)
    matrix.scatter_add_(1, sources, (weights / weights.sum()).expand(size, -1).contiguous())
    return quantize_rows(matrix, bits).to(device)


def gaussian_filter(
    images: Tensor, sigma: float, truncate: float = 4.0, border: Border = clamp_index, bits: int = WEIGHT_BITS
) -> Tensor:
    """Return every image of (…, h, w) blurred by a Gaussian, unchanged if the kernel has a single weight."""
    if int(truncate * sigma + 0.5) == 0:
        return images
    rows, columns = (gaussian_matrix(size, sigma, truncate, border, bits, images.device) for size in images.shape[-2:])
    return apply_separable(images, rows, columns)


def zoom_matrix(size: int, factor: float) -> Tensor:
    """Return the (size, size) matrix of a zoom into the middle with linear interpolation, corners aligned.

    The middle ⌈size / factor⌉ pixels are resized to round(that × factor) pixels and cropped to ``size``.
    """
    crop = math.ceil(size / factor)
    stretched = round(crop * factor)
    start, trim = (size - crop) // 2, (stretched - size) // 2
    positions = (torch.arange(size, dtype=torch.float64) + trim) * ((crop - 1) / max(stretched - 1, 1))
    lower = positions.floor().clamp(0, crop - 1)
    upper = (lower + 1).clamp(max=crop - 1)
    fraction = (positions - lower)[:, None]
    matrix = torch.zeros(size, size, dtype=torch.float64)
    matrix.scatter_add_(1, start + lower.long()[:, None], 1 - fraction)
    return matrix.scatter_add_(1, start + upper.long()[:, None], fraction)


Bands = tuple[tuple[int, int, Tensor], ...]
_BAND_ROWS = 2


def split_into_bands(matrix: Tensor, height: int, width: int, device: torch.device) -> Bands:
    """Split a matrix over all h·w pixels into bands of two output rows, each with the input rows it uses.

    Returns:
        For each band the first input pixel, the end of its input pixels, and the weights (input, output pixels).
    """
    bands = []
    for first in range(0, height, _BAND_ROWS):
        rows = matrix[first * width : (first + _BAND_ROWS) * width]
        used = rows.view(len(rows), height, width).any(-1).any(0).nonzero()
        start, stop = int(used[0]) * width, (int(used[-1]) + 1) * width
        bands.append((start, stop, rows[:, start:stop].mT.contiguous().to(device)))
    return tuple(bands)


def apply_bands(images: Tensor, bands: Bands) -> Tensor:
    """Return every image of (n, c, h, w) multiplied by the matrix that was split into ``bands``, in float64."""
    flat = images.to(torch.float64).view(-1, images.shape[-2] * images.shape[-1])
    return torch.cat([flat[:, start:stop] @ weights for start, stop, weights in bands], 1).view(images.shape)


def correlate(images: Tensor, kernel: Tensor) -> Tensor:
    """Return every image of (…, h, w) correlated with a small odd kernel, with mirrored borders.

    Shifted copies with equal weight are added before they are multiplied: a disk has few different weights.
    """
    middle = torch.tensor(kernel.shape) // 2
    reach_y, reach_x = (kernel.nonzero() - middle).abs().amax(0).tolist()
    (top, left), (height, width) = (middle - torch.tensor([reach_y, reach_x])).tolist(), images.shape[-2:]
    wide = mirror_pad(images.to(torch.float64), reach_y, reach_x)
    total = torch.zeros_like(images, dtype=torch.float64)
    groups: dict[float, list[Tensor]] = defaultdict(list)
    for (y, x), weight in zip(kernel.nonzero().tolist(), kernel[kernel != 0].tolist(), strict=True):
        groups[weight].append(wide[..., y - top : y - top + height, x - left : x - left + width])
    for weight, shifted in groups.items():
        group = shifted[0].clone()
        for other in shifted[1:]:
            group += other
        total += group.mul_(weight)
    return total


def mirror_pad(images: Tensor, down: int, across: int) -> Tensor:
    """Return images of (…, h, w) padded on every side, by ``down`` rows and ``across`` columns.

    They are mirrored about the centres of edge pixels: c b | a b c | b a (scipy's 'mirror'), also beyond their size.
    """
    for axis, reach in ((-2, down), (-1, across)):
        size = images.shape[axis]
        period = max(2 * size - 2, 1)
        folded = torch.arange(-reach, size + reach, device=images.device).remainder(period)
        images = images.index_select(axis, torch.minimum(folded, period - folded))
    return images


def sliding_windows(flat: Tensor, width: int) -> Tensor:
    """Return every run of ``width`` consecutive elements of a flat tensor as a row of a view, without a copy."""
    return flat.as_strided((flat.numel() - width + 1, width), (1, 1))
