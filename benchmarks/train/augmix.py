"""AugMix (Hendrycks et al., ICLR 2020) on the device: all images of a batch at once, each with its own random chains.

Four of the nine operations map each value of a channel to another value, so a table of 256 entries computes them. The
other five move pixels by an affine map. One step of a chain is therefore one table lookup and one resampling for all
images, whichever operation each of them drew, in 8-bit values as in Pillow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

OPERATIONS = (
    "autocontrast", "equalize", "posterize", "rotate", "solarize", "shear_x", "shear_y", "translate_x", "translate_y",
)  # fmt: skip
NO_OPERATION = len(OPERATIONS)  # after the end of a chain
WIDTH = 3
DEPTH = 3
SEVERITY = 3.0  # of 10
_INDEX = {name: index for index, name in enumerate(OPERATIONS)}


@dataclass(frozen=True)
class Chains:
    """Random parameters of AugMix for n images; all tensors are on one device.

    Attributes:
        operations: (depth, width, n), indices into ``OPERATIONS``, or ``NO_OPERATION`` after the end of a chain.
        levels: (depth, width, n), strength of each operation, 0.1 to the severity.
        signs: (depth, width, n), −1 or 1, direction in which pixels move.
        weights: (width, n), weights of the chains; their sum is 1.
        mix_weight: (n,), weight of the mixed chains; the image itself has the rest.
    """

    operations: Tensor
    levels: Tensor
    signs: Tensor
    weights: Tensor
    mix_weight: Tensor

    @classmethod
    def from_generator(cls, count: int, generator: torch.Generator, *, severity: float = SEVERITY) -> Chains:
        """Draw chains of random length 1 to 3 for ``count`` images, on the generator's device."""
        options: dict[str, Any] = {"generator": generator, "device": generator.device}
        shape = (DEPTH, WIDTH, count)
        operations = torch.randint(len(OPERATIONS), shape, **options)
        lengths = torch.randint(1, DEPTH + 1, shape[1:], **options)
        ended = torch.arange(DEPTH, device=generator.device)[:, None, None] >= lengths
        levels = 0.1 + (severity - 0.1) * torch.rand(shape, **options)
        signs = 1 - 2 * (torch.rand(shape, **options) > 0.5).to(torch.float32)
        # exponential numbers divided by their sum have the Dirichlet distribution with all concentrations 1
        exponential = -torch.log1p(-torch.rand(shape[1:], **options))
        weights = exponential / exponential.sum(0).clamp_min(1e-12)
        mix_weight = torch.rand(count, **options)  # Beta(1, 1)
        return cls(operations.masked_fill(ended, NO_OPERATION), levels, signs, weights, mix_weight)


def augmix(images: Tensor, chains: Chains) -> Tensor:
    """Return float32 images (n, c, h, w) in [0, 1]: each a mixture of the image and of chains of operations on it.

    A GPU runs about 800 small kernels for any number of images and is never waited for, so it is fastest with thousands
    of images at once. About 20 bytes of memory are used per value. A CPU is fastest with some hundred images at once.

    Args:
        images: uint8 (n, c, h, w).
        chains: random parameters of the images.
    """
    depth, width, _ = chains.operations.shape
    images = images.contiguous()
    maps = affine_maps(images.shape[-2:], chains.operations, chains.levels, chains.signs)
    mixed = torch.zeros(images.shape, device=images.device)
    for chain in range(width):  # one after another: all at once would need three times the memory
        changed = images
        for step in range(depth):
            operations, levels = chains.operations[step, chain], chains.levels[step, chain]
            changed = _resample(_map_values(changed, operations, levels), maps[step, chain])
        mixed += changed * chains.weights[chain].view(-1, 1, 1, 1)
    return torch.lerp(images.to(torch.float32), mixed, chains.mix_weight.view(-1, 1, 1, 1)).div_(255)


# --- operations on values ----------------------------------------------------------------------------------------


def _map_values(images: Tensor, operations: Tensor, levels: Tensor) -> Tensor:
    values = images.flatten(2).to(torch.int64)  # older torch versions index and count int64 only
    return value_tables(_histograms(values), operations, levels).gather(2, values).view(images.shape)


def _histograms(values: Tensor) -> Tensor:
    """Return the number of pixels with each value, int32 (n, c, 256), of values (n, c, pixels)."""
    counts = torch.zeros(*values.shape[:2], 256, dtype=torch.int32, device=values.device)
    return counts.scatter_add_(2, values, counts.new_ones(1).expand(values.shape))


def value_tables(histogram: Tensor, operations: Tensor, levels: Tensor) -> Tensor:
    """Return uint8 (n, c, 256): the new value for each value of a channel; unchanged if the operation moves pixels.

    Args:
        histogram: int32 (n, c, 256), number of pixels with each value.
        operations: (n,), indices into ``OPERATIONS``, or ``NO_OPERATION``.
        levels: (n,), 0 to 10.
    """
    values = torch.arange(256, device=histogram.device, dtype=torch.int32)
    tables = values.expand(histogram.shape)
    absent = histogram == 0
    # masked_fill: torch.where would copy a number to the device and wait for it
    first = tables.masked_fill(absent, 255).amin(-1, keepdim=True)
    last = tables.masked_fill(absent, 0).amax(-1, keepdim=True)
    for name, table in (
        ("autocontrast", _autocontrast(first, last, values)),
        ("equalize", _equalize(histogram, last, values)),
        ("posterize", _posterize(levels, values)),
        ("solarize", _solarize(levels, values)),
    ):
        tables = torch.where((operations == _INDEX[name])[:, None, None], table, tables)
    return tables.to(torch.uint8)


def _autocontrast(first: Tensor, last: Tensor, values: Tensor) -> Tensor:
    """Stretch a channel to the range 0 to 255; a constant channel stays."""
    span = (
        (last - first).clamp_min(1).to(torch.float64)
    )  # as in Pillow, so that numbers close to an integer are rounded the same way
    scale = torch.full_like(span, 255) / span  # 255 / span would multiply by a rounded 1/span
    stretched = (values * scale - first * scale).clamp(0, 255).to(torch.int32)
    return torch.where(last > first, stretched, values)


def _equalize(histogram: Tensor, last: Tensor, values: Tensor) -> Tensor:
    """Equalize the histogram of a channel; a channel with very few values stays."""
    cumulative = histogram.cumsum(-1, dtype=torch.int32)
    step = (cumulative[..., -1:] - histogram.gather(-1, last.to(torch.int64))) // 255
    spread = ((step // 2 + cumulative - histogram) // step.clamp_min(1)).clamp(0, 255)
    return torch.where(step > 0, spread, values)


def _posterize(levels: Tensor, values: Tensor) -> Tensor:
    """Keep the 4 to 0 highest bits of a value."""
    dropped_bits = (4 + _level_as_int(levels, 4))[:, None]
    return ((values >> dropped_bits) << dropped_bits)[:, None]


def _solarize(levels: Tensor, values: Tensor) -> Tensor:
    """Invert values from a threshold on."""
    threshold = 256 - _level_as_int(levels, 256)
    return torch.where(values < threshold[:, None], values, 255 - values)[:, None]


# --- operations that move pixels ---------------------------------------------------------------------------------


def affine_maps(size: tuple[int, int] | torch.Size, operations: Tensor, levels: Tensor, signs: Tensor) -> Tensor:
    """Return (…, 2, 3), float64: maps from pixel coordinates (x, y) of the new image to those of the old image.

    Args:
        size: height and width.
        operations: (…), indices into ``OPERATIONS``, or ``NO_OPERATION``.
        levels: (…), 0 to 10.
        signs: (…), −1 or 1.
    """
    height, width = size
    is_chosen = {name: operations == index for name, index in _INDEX.items()}
    zero = torch.zeros_like(levels, dtype=torch.float64)

    def if_chosen(name: str, amount: Tensor) -> Tensor:
        return torch.where(is_chosen[name], amount * signs, zero)

    shear = levels.to(torch.float64) * 0.3 / 10
    angle = if_chosen("rotate", _level_as_int(levels, 30) * (math.pi / 180))
    cosine, sine = torch.cos(angle), torch.sin(angle)
    center_x, center_y = width / 2, height / 2
    # Rotation is about the center. Each image has one operation; the others add zero.
    entries = [
        cosine,
        -sine + if_chosen("shear_x", shear),
        center_x - cosine * center_x + sine * center_y + if_chosen("translate_x", _level_as_int(levels, width / 3)),
        sine + if_chosen("shear_y", shear),
        cosine,
        center_y - sine * center_x - cosine * center_y + if_chosen("translate_y", _level_as_int(levels, height / 3)),
    ]
    return torch.stack(entries, -1).view(*levels.shape, 2, 3)


def _resample(images: Tensor, maps: Tensor) -> Tensor:
    """Return images resampled bilinearly, black outside the image, rounded down as in Pillow."""
    grid = _grid(maps, *images.shape[-2:])
    inside = ((grid >= -1) & (grid < 1)).all(-1)
    moved = F.grid_sample(images.to(torch.float32), grid, mode="bilinear", padding_mode="border", align_corners=False)
    # The small number keeps integers that are slightly too small because of rounding.
    return moved.mul_(inside[:, None]).add_(1e-3).to(torch.uint8)


def _grid(maps: Tensor, height: int, width: int) -> Tensor:
    """Return sampling coordinates for grid_sample, float32 (n, h, w, 2), −1 to 1.

    Only one row and one column per image are computed in float64; the coordinates of a pixel are sums of two entries.
    """
    x = torch.arange(width, device=maps.device, dtype=torch.float64)[:, None] + 0.5
    y = torch.arange(height, device=maps.device, dtype=torch.float64)[:, None] + 0.5
    by_x, by_y, shift = maps[:, None].unbind(-1)  # (n, 1, 2) each
    across, down = by_x * x, by_y * y + shift  # (n, w, 2) and (n, h, 2), in pixels

    def scaled(coordinates: Tensor) -> Tensor:
        return torch.stack((coordinates[..., 0] * (2 / width), coordinates[..., 1] * (2 / height)), -1)

    return scaled(across).to(torch.float32)[:, None] + (scaled(down) - 1).to(torch.float32)[:, :, None]


def _level_as_int(levels: Tensor, highest: float) -> Tensor:
    """Return level/10 of ``highest``, rounded down to an integer."""
    return (levels * (highest / 10)).to(torch.int32)
