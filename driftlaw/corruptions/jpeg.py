"""JPEG compression and decompression of whole batches, baseline, 4:2:0, as libjpeg's defaults do it."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from driftlaw.corruptions.linear import padded, repeated
from driftlaw.corruptions.registry import Numbers
from driftlaw.corruptions.rng import Draws

# ITU T.81, tables K.1 and K.2.
_LUMINANCE = (
    (16, 11, 10, 16, 24, 40, 51, 61), (12, 12, 14, 19, 26, 58, 60, 55), (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62), (18, 22, 37, 56, 68, 109, 103, 77), (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101), (72, 92, 95, 98, 112, 100, 103, 99),
)  # fmt: skip
_CHROMINANCE = (
    (17, 18, 24, 47, 99, 99, 99, 99), (18, 21, 26, 66, 99, 99, 99, 99), (24, 26, 56, 99, 99, 99, 99, 99),
    (47, 66, 99, 99, 99, 99, 99, 99), *((99,) * 8,) * 4,
)  # fmt: skip
Rows = tuple[tuple[float, ...], ...]
# Red, green, blue to luma, blue and red difference, and from the differences back to what luma lacks of each colour.
_FORWARD = ((0.299, 0.587, 0.114), (-0.168735892, -0.331264108, 0.5), (0.5, -0.418687589, -0.081312411))
_FORWARD_OFFSETS = (32768, (128 << 16) + 32767, (128 << 16) + 32767)
_BACKWARD = ((0.0, 1.402), (-0.34414, -0.71414), (1.772, 0.0))
_BACKWARD_OFFSETS = (32768, 32768, 32768)
# The cosine transform in 13-bit fixed point. libjpeg adds its constants up in another order, so that some of these sums
# are one off the rounded cosine; the odd rows are what its butterflies come to.
_EVEN = ((8192, 8192), (10703, 4433), (8192, -8192), (4433, -10704))
_ODD = (
    (11363, 9633, 6437, 2260),
    (9633, -2259, -11362, -6436),
    (6437, -11362, 2261, 9633),
    (2260, -6436, 9633, -11363),
)


def jpeg_compression(images: Tensor, numbers: Numbers, draws: Draws) -> Tensor:
    """Write the picture as a JPEG of low quality and read it again: the same integers as libjpeg's slow transform."""
    (quality,) = numbers
    height, width = images.shape[-2:]
    planes = _recoloured(images.round(), _FORWARD, _FORWARD_OFFSETS)
    luma = _through_blocks(planes[:, :1], _table(_LUMINANCE, int(quality), images.device))
    chroma = _through_blocks(_halved(planes[:, 1:]), _table(_CHROMINANCE, int(quality), images.device))
    chroma = _doubled(chroma)[..., :height, :width] - 128
    return luma + _recoloured(chroma, _BACKWARD, _BACKWARD_OFFSETS)


def _recoloured(planes: Tensor, weights: Rows, offsets: tuple[int, ...]) -> Tensor:
    """Mix the planes of (n, k, h, w) in libjpeg's 16-bit fixed point, rounded down."""
    matrix, lean = _mixing(weights, offsets, planes.device)
    mixed = torch.matmul(matrix, planes.to(torch.float64).flatten(2))
    return mixed.add_(lean).mul_(2**-16).floor_().to(torch.float32).view(len(planes), -1, *planes.shape[-2:])


@lru_cache(maxsize=8)
def _mixing(weights: Rows, offsets: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    matrix = torch.round(torch.tensor(weights, dtype=torch.float64) * 2**16)
    return matrix.to(device), torch.tensor(offsets, dtype=torch.float64, device=device)[:, None]


def _halved(planes: Tensor) -> Tensor:
    """Average 2×2 pixels; the rounding leans down and up in turn along a row."""
    height, width = planes.shape[-2:]
    planes = _grown(planes, height + height % 2, width + width % 2)
    total = planes[..., ::2, ::2] + planes[..., ::2, 1::2] + planes[..., 1::2, ::2] + planes[..., 1::2, 1::2]
    lean = 1 + torch.arange(total.shape[-1], device=planes.device) % 2
    return (total + lean).mul_(0.25).floor_()


def _grown(planes: Tensor, height: int, width: int) -> Tensor:
    """Repeat the last row and column until the planes have this size."""
    for axis, size in ((-2, height), (-1, width)):
        if planes.shape[axis] != size:
            places = repeated(torch.arange(size, device=planes.device), planes.shape[axis])
            planes = planes.index_select(axis, places)
    return planes


def _doubled(planes: Tensor) -> Tensor:
    """Enlarge twice with a triangle filter, three parts of the near pixel and one of the far, as libjpeg rounds it."""
    wide = padded(planes, 1, 1, repeated)
    near = wide[..., 1:-1, :] * 3
    rows = torch.stack([near + wide[..., :-2, :], near + wide[..., 2:, :]], -2).flatten(-3, -2)
    near = rows[..., 1:-1] * 3
    left, right = near + rows[..., :-2] + 8, near + rows[..., 2:] + 7
    return torch.stack([left, right], -1).flatten(-2).mul_(1 / 16).floor_()


def _through_blocks(planes: Tensor, table: Tensor) -> Tensor:
    """Transform blocks of 8×8, round their coefficients to multiples of the table, transform back."""
    count, depth, height, width = planes.shape
    down, across = math.ceil(height / 8), math.ceil(width / 8)
    grown = _grown(planes, 8 * down, 8 * across).view(count, depth, down, 8, across, 8)
    blocks = grown.permute(0, 1, 2, 4, 3, 5).to(torch.float64, memory_format=torch.contiguous_format) - 128
    cosines = _cosines(planes.device)
    # Rows then columns on the way out, columns then rows on the way back, each rounded as libjpeg rounds it.
    coefficients = _turned(_turned(blocks, cosines.mT, 11), cosines.mT, 15).div_(8 * table)
    half = torch.full((), 0.5, dtype=torch.float64, device=planes.device)
    kept = coefficients.add_(torch.copysign(half, coefficients)).trunc_().mul_(table)
    pixels = _turned(_turned(kept.mT, cosines, 11), cosines, 18).mT.add_(128).clamp_(0, 255)
    tiled = pixels.to(torch.float32).permute(0, 1, 2, 4, 3, 5)
    return tiled.reshape(count, depth, 8 * down, 8 * across)[..., :height, :width]


def _turned(blocks: Tensor, matrix: Tensor, shift: int) -> Tensor:
    """Multiply the rows of all blocks by a matrix, shift the sums down with rounding, transpose the blocks."""
    return torch.matmul(blocks, matrix).add_(2 ** (shift - 1)).mul_(2.0**-shift).floor_().mT


@lru_cache(maxsize=4)
def _cosines(device: torch.device) -> Tensor:
    """Return the (8, 8) matrix of the cosine transform, times 2¹³·√8; its transpose is the way back."""
    rows = []
    for even, odd in zip(_EVEN, _ODD, strict=True):
        half = (even[0], even[1], -even[1], -even[0]) if even[0] != 8192 else (8192, even[1], even[1], 8192)
        rows += [[*half, *half[::-1]], [*odd, *(-weight for weight in odd[::-1])]]
    return torch.tensor(rows, dtype=torch.float64, device=device)


@lru_cache(maxsize=64)
def _table(base: Rows, quality: int, device: torch.device) -> Tensor:
    scale = 5000 // quality if quality < 50 else 200 - 2 * quality
    table = (torch.tensor(base, dtype=torch.int64) * scale + 50) // 100
    return table.clamp(1, 255).to(torch.float64).to(device)
