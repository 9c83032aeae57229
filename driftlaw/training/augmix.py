"""AugMix (Hendrycks et al., ICLR 2020) on the device: every image of a batch mixed from chains of its own at once.

Four of the nine operations map each value of a channel to another, so that a table of 256 values does them; the other
five move pixels by an affine map. One step of a chain is therefore one look-up and one resampling for all images,
whatever operation each of them drew, in whole 8-bit values as Pillow computes them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

OPERATIONS = (
    "autocontrast",
    "equalize",
    "posterize",
    "rotate",
    "solarize",
    "shear_x",
    "shear_y",
    "translate_x",
    "translate_y",
)
NOTHING = len(OPERATIONS)  # the number of the operation of a chain that has ended
WIDTH = 3
DEPTH = 3
SEVERITY = 3.0  # of 10
_NUMBER = {name: number for number, name in enumerate(OPERATIONS)}


@dataclass(frozen=True)
class Chains:
    """What was drawn for some images; all tensors on one device.

    Attributes:
        operations: (depth, width, n), numbers of ``OPERATIONS``, or ``NOTHING`` where a chain has ended.
        levels: (depth, width, n), the strength of each operation, 0.1 to the severity.
        signs: (depth, width, n), −1 or 1, which way pixels move.
        weights: (width, n), of the chains; they add up to 1.
        share: (n,), of the mixed chains in the image; the rest is the image itself.
    """

    operations: Tensor
    levels: Tensor
    signs: Tensor
    weights: Tensor
    share: Tensor

    @classmethod
    def from_generator(cls, count: int, generator: torch.Generator, *, severity: float = SEVERITY) -> Chains:
        """Draw chains of random length 1 to 3 for ``count`` images, on the generator's device."""
        where = {"generator": generator, "device": generator.device}
        shape = (DEPTH, WIDTH, count)
        operations = torch.randint(len(OPERATIONS), shape, **where)
        lengths = torch.randint(1, DEPTH + 1, shape[1:], **where)
        ended = torch.arange(DEPTH, device=generator.device)[:, None, None] >= lengths
        levels = 0.1 + (severity - 0.1) * torch.rand(shape, **where)
        signs = torch.where(torch.rand(shape, **where) > 0.5, -1.0, 1.0)
        # exponential draws divided by their sum are a Dirichlet draw with all concentrations 1
        spans = -torch.log1p(-torch.rand(shape[1:], **where))
        weights = spans / spans.sum(0).clamp_min(1e-12)
        share = torch.rand(count, **where)  # Beta(1, 1)
        return cls(operations.masked_fill(ended, NOTHING), levels, signs, weights, share)


def augmix(images: Tensor, chains: Chains) -> Tensor:
    """Return float32 images (n, c, h, w) in [0, 1]: each a mixture of itself and of chains of operations on it.

    Args:
        images: uint8 (n, c, h, w).
        chains: what was drawn for them.
    """
    depth, width, count = chains.operations.shape
    shape = images.shape[1:]
    mixed = images.expand(width, *images.shape).reshape(width * count, *shape)
    for step in range(depth):
        drawn = (chains.operations[step], chains.levels[step], chains.signs[step])
        mixed = apply_operations(mixed, *(values.reshape(-1) for values in drawn))
    weights = chains.weights.view(width, count, 1, 1, 1) / 255
    together = (mixed.view(width, count, *shape) * weights).sum(0)
    share = chains.share.view(-1, 1, 1, 1)
    return (1 - share) * images.to(torch.float32).div(255) + share * together


def apply_operations(images: Tensor, operations: Tensor, levels: Tensor, signs: Tensor) -> Tensor:
    """Return uint8 images (n, c, h, w), each with its own operation of its own strength applied.

    Args:
        images: uint8.
        operations: (n,), numbers of ``OPERATIONS``, or ``NOTHING``.
        levels: (n,), 0 to 10.
        signs: (n,), −1 or 1; values are changed the same either way.
    """
    recoloured = _look_up(images, value_tables(images, operations, levels))
    return _resample(recoloured, affine_maps(images.shape[-2:], operations, levels, signs))


# --- operations on values ----------------------------------------------------------------------------------------


def value_tables(images: Tensor, operations: Tensor, levels: Tensor) -> Tensor:
    """Return uint8 (n, c, 256): what each value of a channel becomes; itself where the operation moves pixels."""
    values = torch.arange(256, device=images.device)
    histogram = _histograms(images)
    tables = values.expand(histogram.shape)
    for name, table in (
        ("autocontrast", _autocontrast(histogram, values)),
        ("equalize", _equalize(histogram, values)),
        ("posterize", _posterize(levels, values)),
        ("solarize", _solarize(levels, values)),
    ):
        tables = torch.where((operations == _NUMBER[name])[:, None, None], table, tables)
    return tables.to(torch.uint8)


def _histograms(images: Tensor) -> Tensor:
    """Return how often each value comes in each channel, (n, c, 256)."""
    values = images.flatten(2).to(torch.int64)
    counts = torch.zeros(*images.shape[:2], 256, dtype=torch.int64, device=images.device)
    return counts.scatter_add_(2, values, torch.ones_like(values))


def _first_and_last(histogram: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    there = histogram > 0
    first = torch.where(there, values, 255).amin(-1, keepdim=True)
    return first, torch.where(there, values, 0).amax(-1, keepdim=True)


def _autocontrast(histogram: Tensor, values: Tensor) -> Tensor:
    """Stretch a channel over all values; one of a single value stays."""
    first, last = _first_and_last(histogram, values)
    span = (last - first).clamp_min(1).to(torch.float64)
    scale = torch.full_like(span, 255) / span  # 255 / span would multiply by a rounded 1/span
    stretched = (values * scale - first * scale).trunc().clamp(0, 255).to(torch.int64)
    return torch.where(last > first, stretched, values)


def _equalize(histogram: Tensor, values: Tensor) -> Tensor:
    """Spread a channel so that every value comes about equally often; one of very few values stays."""
    _, last = _first_and_last(histogram, values)
    step = (histogram.sum(-1, keepdim=True) - histogram.gather(-1, last)) // 255
    below = histogram.cumsum(-1) - histogram
    spread = ((step // 2 + below) // step.clamp_min(1)).clamp(0, 255)
    return torch.where(step > 0, spread, values)


def _posterize(levels: Tensor, values: Tensor) -> Tensor:
    """Keep the highest bits of a value, 4 down to 0."""
    bits = 4 - _whole(levels, 4)
    return ((values >> (8 - bits)[:, None]) << (8 - bits)[:, None])[:, None]


def _solarize(levels: Tensor, values: Tensor) -> Tensor:
    """Invert values from a threshold on."""
    threshold = 256 - _whole(levels, 256)
    return torch.where(values < threshold[:, None], values, 255 - values)[:, None]


def _look_up(images: Tensor, tables: Tensor) -> Tensor:
    return tables.gather(2, images.flatten(2).to(torch.int64)).view(images.shape)


# --- operations that move pixels ---------------------------------------------------------------------------------


def affine_maps(size: tuple[int, int] | torch.Size, operations: Tensor, levels: Tensor, signs: Tensor) -> Tensor:
    """Return (n, 2, 3), float64: where in the old image (x, y), in pixels, a place of the new one is taken from."""
    height, width = size
    is_drawn = {name: operations == number for name, number in _NUMBER.items()}
    zero = torch.zeros_like(levels, dtype=torch.float64)

    def where(name: str, amount: Tensor) -> Tensor:
        return torch.where(is_drawn[name], amount * signs, zero)

    shear = levels.to(torch.float64) * 0.3 / 10
    angle = where("rotate", _whole(levels, 30) * (math.pi / 180))
    cosine, sine = torch.cos(angle), torch.sin(angle)
    across, down = width / 2, height / 2
    # turned about the middle; each image has one operation, so that the others add nothing
    rows = [
        cosine,
        -sine + where("shear_x", shear),
        across - cosine * across + sine * down + where("translate_x", _whole(levels, width / 3)),
        sine + where("shear_y", shear),
        cosine,
        down - sine * across - cosine * down + where("translate_y", _whole(levels, height / 3)),
    ]
    return torch.stack(rows, -1).view(-1, 2, 3)


def _resample(images: Tensor, maps: Tensor) -> Tensor:
    """Return images resampled bilinearly, black where nothing was, rounded down as Pillow does."""
    height, width = images.shape[-2:]
    y, x = torch.meshgrid(
        torch.arange(height, device=images.device, dtype=torch.float64) + 0.5,
        torch.arange(width, device=images.device, dtype=torch.float64) + 0.5,
        indexing="ij",
    )
    places = torch.stack((x, y, torch.ones_like(x)), -1).flatten(0, 1) @ maps.transpose(1, 2)
    inside = ((places >= 0) & (places < places.new_tensor((width, height)))).all(-1)
    grid = (places * places.new_tensor((2 / width, 2 / height)) - 1).to(torch.float32)
    moved = F.grid_sample(
        images.to(torch.float32),
        grid.view(-1, height, width, 2),
        mode="bilinear",
        padding_mode="border",
        align_corners=False,
    )
    moved = moved * inside.view(-1, 1, height, width)
    # what is a whole number but for the last bits of a float stays that number
    return (moved + 1e-3).floor().to(torch.uint8)


def _whole(levels: Tensor, highest: float) -> Tensor:
    """Return a level of 10 as a share of ``highest``, cut to a whole number."""
    return (levels * (highest / 10)).to(torch.int64)
