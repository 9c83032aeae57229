"""Blurs and resamplings as weights on a dyadic grid, so that their sums are exact in any order.

A matrix product may add in another order for another batch size or device. Grey levels are multiples of 2⁻¹⁰ and
weights multiples of 2⁻¹⁶ here, so in float64 no addition rounds, and image i comes out in the same bits in any batch.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

WEIGHT_BITS = 16
GREY_BITS = 10


def on_grid(values: Tensor, bits: int) -> Tensor:
    """Return the values rounded to multiples of 2⁻ᵇⁱᵗˢ."""
    return torch.round(values * 2**bits) / 2**bits


def exact(weights: Tensor, bits: int = WEIGHT_BITS) -> Tensor:
    """Return float64 weights on the grid; every row (last axis) keeps its sum, its largest weight takes the rest."""
    weights = weights.to(torch.float64)
    snapped = on_grid(weights, bits)
    missing = on_grid(weights.sum(-1, keepdim=True), bits) - snapped.sum(-1, keepdim=True)
    return snapped.scatter_add(-1, snapped.argmax(-1, keepdim=True), missing)


def sandwich(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return rows · image · columnsᵀ for every image of (…, h, w), in float64."""
    across = torch.matmul(images.to(torch.float64), columns.mT)
    return torch.matmul(rows, across)


def mirrored(index: Tensor, size: int) -> Tensor:
    """Return indices folded back into [0, size) about the edge pixels' centres: c b | a b c | b a."""
    if size == 1:
        return torch.zeros_like(index)
    folded = index.remainder(2 * size - 2)
    return torch.minimum(folded, 2 * size - 2 - folded)


def reflected(index: Tensor, size: int) -> Tensor:
    """Return indices folded back into [0, size) about the images' edges: b a | a b c | c b."""
    folded = index.remainder(2 * size)
    return torch.minimum(folded, 2 * size - 1 - folded)


def repeated(index: Tensor, size: int) -> Tensor:
    """Return indices held at the edge pixels: a a | a b c | c c."""
    return index.clamp(0, size - 1)


Border = Callable[[Tensor, int], Tensor]


@lru_cache(maxsize=64)
def gaussian_rows(size: int, sigma: float, truncate: float, border: Border, bits: int, device: torch.device) -> Tensor:
    """Return the (size, size) matrix of a Gaussian blur cut off at ``truncate`` deviations."""
    radius = int(truncate * sigma + 0.5)
    offsets = torch.arange(-radius, radius + 1)
    weights = torch.exp(-0.5 * (offsets.to(torch.float64) / sigma) ** 2)
    sources = border(torch.arange(size)[:, None] + offsets, size)
    matrix = torch.zeros(size, size, dtype=torch.float64)
    matrix.scatter_add_(1, sources, (weights / weights.sum()).expand(size, -1).contiguous())
    return exact(matrix, bits).to(device)


def gaussian(
    images: Tensor, sigma: float, truncate: float = 4.0, border: Border = repeated, bits: int = WEIGHT_BITS
) -> Tensor:
    """Return every image of (…, h, w) blurred by a Gaussian; one too narrow to reach a neighbour changes nothing."""
    if int(truncate * sigma + 0.5) == 0:
        return images
    rows, columns = (gaussian_rows(size, sigma, truncate, border, bits, images.device) for size in images.shape[-2:])
    return sandwich(images, rows, columns)


def zoom_rows(size: int, factor: float) -> Tensor:
    """Return the (size, size) matrix of a zoom into the middle by linear sampling, ends on ends.

    The middle ⌈size / factor⌉ pixels are stretched to round(that × factor) and trimmed to ``size`` again.
    """
    crop = math.ceil(size / factor)
    stretched = round(crop * factor)
    start, trim = (size - crop) // 2, (stretched - size) // 2
    places = (torch.arange(size, dtype=torch.float64) + trim) * ((crop - 1) / max(stretched - 1, 1))
    lower = places.floor().clamp(0, crop - 1)
    upper = (lower + 1).clamp(max=crop - 1)
    share = (places - lower)[:, None]
    matrix = torch.zeros(size, size, dtype=torch.float64)
    matrix.scatter_add_(1, start + lower.long()[:, None], 1 - share)
    return matrix.scatter_add_(1, start + upper.long()[:, None], share)


Bands = tuple[tuple[int, int, Tensor], ...]
_BAND_ROWS = 2


def bands_of(matrix: Tensor, height: int, width: int, device: torch.device) -> Bands:
    """Cut a matrix over all h·w pixels into bands of two output rows, each with the input rows it looks at.

    Returns:
        For each band the first and the last but one input pixel and the weights, (input pixels, output pixels).
    """
    bands = []
    for first in range(0, height, _BAND_ROWS):
        rows = matrix[first * width : (first + _BAND_ROWS) * width]
        used = rows.view(len(rows), height, width).any(-1).any(0).nonzero()
        start, stop = int(used[0]) * width, (int(used[-1]) + 1) * width
        bands.append((start, stop, rows[:, start:stop].mT.contiguous().to(device)))
    return tuple(bands)


def banded(images: Tensor, bands: Bands) -> Tensor:
    """Return every image of (n, c, h, w) under the matrix that the bands were cut from, in float64."""
    flat = images.to(torch.float64).view(-1, images.shape[-2] * images.shape[-1])
    return torch.cat([flat[:, start:stop] @ weights for start, stop, weights in bands], 1).view(images.shape)


def correlation_matrix(kernel: Tensor, height: int, width: int) -> Tensor:
    """Return the matrix over all h·w pixels of a correlation with a kernel, mirrored at the edge pixels."""
    kernel, reach_y, reach_x = _trimmed(kernel)
    matrix = torch.zeros(height * width, height * width, dtype=torch.float64)
    rows, columns = torch.arange(height)[:, None], torch.arange(width)
    targets = torch.arange(height * width)
    for y, line in enumerate(kernel.tolist()):
        for x, weight in enumerate(line):
            sources = mirrored(rows + y - reach_y, height) * width + mirrored(columns + x - reach_x, width)
            matrix[targets, sources.view(-1)] += weight
    return matrix


def filtered(images: Tensor, kernel: Tensor) -> Tensor:
    """Return every image of (…, h, w) correlated with a small odd kernel on the CPU, mirrored at the edge pixels.

    Shifted copies of equal weight are added first and weighted once: a round kernel has few different weights.
    """
    kernel, reach_y, reach_x = _trimmed(kernel)
    height, width = images.shape[-2:]
    wide = padded(images.to(torch.float64), reach_y, reach_x, mirrored)
    total = torch.zeros_like(images, dtype=torch.float64)
    for weight, places in _by_weight(kernel).items():
        shifted = [wide[..., y : y + height, x : x + width] for y, x in places]
        group = shifted[0].clone()
        for other in shifted[1:]:
            group += other
        total += group.mul_(weight)
    return total


def padded(images: Tensor, down: int, across: int, border: Border) -> Tensor:
    """Return images of (…, h, w) grown on every side, by ``down`` rows and ``across`` columns."""
    for axis, reach in ((-2, down), (-1, across)):
        size = images.shape[axis]
        if reach:
            places = border(torch.arange(-reach, size + reach, device=images.device), size)
            images = images.index_select(axis, places)
    return images


def _trimmed(kernel: Tensor) -> tuple[Tensor, int, int]:
    """Cut off outer rows and columns that are zero, the same number on either side."""
    middle_y, middle_x = (size // 2 for size in kernel.shape)
    used = kernel.nonzero() - torch.tensor([middle_y, middle_x])
    reach_y, reach_x = (int(reach) for reach in used.abs().amax(0))
    cut = kernel[middle_y - reach_y : middle_y + reach_y + 1, middle_x - reach_x : middle_x + reach_x + 1]
    return cut, reach_y, reach_x


def _by_weight(kernel: Tensor) -> dict[float, list[tuple[int, int]]]:
    groups: dict[float, list[tuple[int, int]]] = defaultdict(list)
    for y, row in enumerate(kernel.tolist()):
        for x, weight in enumerate(row):
            if weight:
                groups[weight].append((y, x))
    return groups


def windows(flat: Tensor, width: int) -> Tensor:
    """Return every run of ``width`` neighbours of a flat tensor as a row; a view, nothing is copied."""
    return flat.as_strided((flat.numel() - width + 1, width), (1, 1))
