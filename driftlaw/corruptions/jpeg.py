"""JPEG compression and decompression of whole batches: baseline, 4:2:0, bit-equal with libjpeg's defaults."""

import tomllib
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from driftlaw.corruptions.registry import Parameters
from driftlaw.corruptions.rng import CounterRNG
from driftlaw.paths import PACKAGE

_TABLES = tomllib.loads((PACKAGE / "corruptions" / "jpeg.toml").read_text(encoding="utf-8"))
Rows = tuple[tuple[float, ...], ...]
# RGB to YCbCr, and from Cb and Cr to what is added to Y for each of red, green and blue.
_FORWARD = ((0.299, 0.587, 0.114), (-0.168735892, -0.331264108, 0.5), (0.5, -0.418687589, -0.081312411))
_FORWARD_OFFSETS = (32768, (128 << 16) + 32767, (128 << 16) + 32767)
_BACKWARD = ((0.0, 1.402), (-0.34414, -0.71414), (1.772, 0.0))
_BACKWARD_OFFSETS = (32768, 32768, 32768)


def jpeg_compression(images: Tensor, parameters: Parameters, rng: CounterRNG) -> Tensor:
    """Encode the image as a JPEG of low quality and decode it, with the same integers as libjpeg's slow transform."""
    return encode_and_decode(images.round(), int(parameters[0]))


def encode_and_decode(images: Tensor, quality: int) -> Tensor:
    """Return what a JPEG file of this quality contains; whole gray levels in and out, not limited to [0, 255]."""
    height, width = images.shape[-2:]
    planes = _convert_color(images, _FORWARD, _FORWARD_OFFSETS)
    luma = _quantize_blocks(planes[:, :1], _quantization_table("luminance", quality, images.device))
    chroma = _quantize_blocks(_downsample(planes[:, 1:]), _quantization_table("chrominance", quality, images.device))
    chroma = _upsample(chroma)[..., :height, :width] - 128
    return luma + _convert_color(chroma, _BACKWARD, _BACKWARD_OFFSETS)


def _convert_color(planes: Tensor, weights: Rows, offsets: tuple[int, ...]) -> Tensor:
    """Multiply the planes of (n, k, h, w) by a color matrix in libjpeg's 16-bit fixed point, rounded down."""
    matrix, rounding = _color_matrix(weights, offsets, planes.device)
    mixed = torch.matmul(matrix, planes.to(torch.float64).flatten(2))
    return mixed.add_(rounding).mul_(2**-16).floor_().to(torch.float32).view(len(planes), -1, *planes.shape[-2:])


@lru_cache(maxsize=8)
def _color_matrix(weights: Rows, offsets: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    matrix = torch.round(torch.tensor(weights, dtype=torch.float64) * 2**16)
    return matrix.to(device), torch.tensor(offsets, dtype=torch.float64, device=device)[:, None]


def _downsample(planes: Tensor) -> Tensor:
    """Average 2×2 pixels. The rounding alternates between down and up along a row."""
    planes = _pad_to_multiple(planes, 2)
    total = planes[..., ::2, ::2] + planes[..., ::2, 1::2] + planes[..., 1::2, ::2] + planes[..., 1::2, 1::2]
    rounding = 1 + torch.arange(total.shape[-1], device=planes.device) % 2
    return (total + rounding).mul_(0.25).floor_()


def _pad_to_multiple(planes: Tensor, size: int) -> Tensor:
    """Repeat the last row and column until height and width are multiples of ``size``."""
    return F.pad(planes, (0, -planes.shape[-1] % size, 0, -planes.shape[-2] % size), mode="replicate")


def _upsample(planes: Tensor) -> Tensor:
    """Upsample by two with a triangle filter, 3/4 of the near and 1/4 of the far pixel, rounded as libjpeg does."""
    wide = F.pad(planes, (1, 1, 1, 1), mode="replicate")
    near = wide[..., 1:-1, :] * 3
    rows = torch.stack([near + wide[..., :-2, :], near + wide[..., 2:, :]], -2).flatten(-3, -2)
    near = rows[..., 1:-1] * 3
    left, right = near + rows[..., :-2] + 8, near + rows[..., 2:] + 7
    return torch.stack([left, right], -1).flatten(-2).mul_(1 / 16).floor_()


def _quantize_blocks(planes: Tensor, table: Tensor) -> Tensor:
    """Transform blocks of 8×8, round their coefficients to multiples of the table, and transform back."""
    count, depth, height, width = planes.shape
    grown = _pad_to_multiple(planes, 8).unflatten(3, (-1, 8)).unflatten(2, (-1, 8))
    blocks = grown.permute(0, 1, 2, 4, 3, 5).to(torch.float64, memory_format=torch.contiguous_format) - 128
    cosines = _dct_matrix(planes.device)
    # Forward: rows, then columns. Inverse: columns, then rows. Each pass is rounded as in libjpeg.
    coefficients = _transform_rows(_transform_rows(blocks, cosines.mT, 11), cosines.mT, 15).div_(8 * table)
    half = torch.full((), 0.5, dtype=torch.float64, device=planes.device)
    kept = coefficients.add_(torch.copysign(half, coefficients)).trunc_().mul_(table)
    pixels = _transform_rows(_transform_rows(kept.mT, cosines, 11), cosines, 18).mT.add_(128).clamp_(0, 255)
    tiled = pixels.to(torch.float32).permute(0, 1, 2, 4, 3, 5)
    return tiled.reshape(count, depth, 8 * grown.shape[2], -1)[..., :height, :width]


def _transform_rows(blocks: Tensor, matrix: Tensor, shift: int) -> Tensor:
    """Multiply the rows of all blocks by a matrix, shift the sums right with rounding, and transpose the blocks."""
    return torch.matmul(blocks, matrix).add_(2 ** (shift - 1)).mul_(2.0**-shift).floor_().mT


@lru_cache(maxsize=4)
def _dct_matrix(device: torch.device) -> Tensor:
    return torch.tensor(_TABLES["cosines"], dtype=torch.float64, device=device)


@lru_cache(maxsize=64)
def _quantization_table(name: str, quality: int, device: torch.device) -> Tensor:
    scale = 5000 // quality if quality < 50 else 200 - 2 * quality
    table = (torch.tensor(_TABLES[name], dtype=torch.int64) * scale + 50) // 100
    return table.clamp(1, 255).to(torch.float64).to(device)
