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
        signs = 1 - 2 * (torch.rand(shape, **where) > 0.5).to(torch.float32)
        # exponential draws divided by their sum are a Dirichlet draw with all concentrations 1
        spans = -torch.log1p(-torch.rand(shape[1:], **where))
        weights = spans / spans.sum(0).clamp_min(1e-12)
        share = torch.rand(count, **where)  # Beta(1, 1)
        return cls(operations.masked_fill(ended, NOTHING), levels, signs, weights, share)


def augmix(images: Tensor, chains: Chains) -> Tensor:
    """Return float32 images (n, c, h, w) in [0, 1]: each a mixture of itself and of chains of operations on it.

    A GPU is given some 800 small kernels whatever the number of images, and waited for nowhere: mix thousands at once.
    The work takes about 20 bytes for each of their values. On a CPU some hundred images at once are faster.

    Args:
        images: uint8 (n, c, h, w).
        chains: what was drawn for them.
    """
    depth, width, _ = chains.operations.shape
    images = images.contiguous()
    maps = affine_maps(images.shape[-2:], chains.operations, chains.levels, chains.signs)
    together = torch.zeros(images.shape, device=images.device)
    for path in range(width):  # one after another: together they would take three times the memory
        changed = images
        for step in range(depth):
            operations, levels = chains.operations[step, path], chains.levels[step, path]
            changed = _resample(_recolour(changed, operations, levels), maps[step, path])
        together += changed * chains.weights[path].view(-1, 1, 1, 1)
    return torch.lerp(images.to(torch.float32), together, chains.share.view(-1, 1, 1, 1)).div_(255)


def apply_operations(images: Tensor, operations: Tensor, levels: Tensor, signs: Tensor) -> Tensor:
    """Return uint8 images (n, c, h, w), each with its own operation of its own strength applied.

    Args:
        images: uint8.
        operations: (n,), numbers of ``OPERATIONS``, or ``NOTHING``.
        levels: (n,), 0 to 10.
        signs: (n,), −1 or 1; values are changed the same either way.
    """
    maps = affine_maps(images.shape[-2:], operations, levels, signs)
    return _resample(_recolour(images, operations, levels), maps)


# --- operations on values ----------------------------------------------------------------------------------------


def _recolour(images: Tensor, operations: Tensor, levels: Tensor) -> Tensor:
    values = images.flatten(2).to(torch.int64)  # the only type that older torch versions count and look up by
    return value_tables(_histograms(values), operations, levels).gather(2, values).view(images.shape)


def _histograms(values: Tensor) -> Tensor:
    """Return how often each value comes in each channel, int32 (n, c, 256), of values (n, c, pixels)."""
    counts = torch.zeros(*values.shape[:2], 256, dtype=torch.int32, device=values.device)
    return counts.scatter_add_(2, values, counts.new_ones(1).expand(values.shape))


def value_tables(histogram: Tensor, operations: Tensor, levels: Tensor) -> Tensor:
    """Return uint8 (n, c, 256): what each value of a channel becomes; itself where the operation moves pixels.

    Args:
        histogram: int32 (n, c, 256), how often each value comes in each channel.
        operations: (n,), numbers of ``OPERATIONS``, or ``NOTHING``.
        levels: (n,), 0 to 10.
    """
    values = torch.arange(256, device=histogram.device, dtype=torch.int32)
    tables = values.expand(histogram.shape)
    absent = histogram == 0
    # filled, as torch.where would copy a number to the device and wait for it
    first = tables.masked_fill(absent, 255).amin(-1, keepdim=True)
    last = tables.masked_fill(absent, 0).amax(-1, keepdim=True)
    for name, table in (
        ("autocontrast", _autocontrast(first, last, values)),
        ("equalize", _equalize(histogram, last, values)),
        ("posterize", _posterize(levels, values)),
        ("solarize", _solarize(levels, values)),
    ):
        tables = torch.where((operations == _NUMBER[name])[:, None, None], table, tables)
    return tables.to(torch.uint8)


def _autocontrast(first: Tensor, last: Tensor, values: Tensor) -> Tensor:
    """Stretch a channel over all values; one of a single value stays."""
    span = (last - first).clamp_min(1).to(torch.float64)  # Pillow's type: what is nearly whole is cut the same way
    scale = torch.full_like(span, 255) / span  # 255 / span would multiply by a rounded 1/span
    stretched = (values * scale - first * scale).clamp(0, 255).to(torch.int32)
    return torch.where(last > first, stretched, values)


def _equalize(histogram: Tensor, last: Tensor, values: Tensor) -> Tensor:
    """Spread a channel so that every value comes about equally often; one of very few values stays."""
    up_to = histogram.cumsum(-1, dtype=torch.int32)
    step = (up_to[..., -1:] - histogram.gather(-1, last.to(torch.int64))) // 255
    spread = ((step // 2 + up_to - histogram) // step.clamp_min(1)).clamp(0, 255)
    return torch.where(step > 0, spread, values)


def _posterize(levels: Tensor, values: Tensor) -> Tensor:
    """Keep the highest bits of a value, 4 down to 0."""
    lost = (4 + _whole(levels, 4))[:, None]
    return ((values >> lost) << lost)[:, None]


def _solarize(levels: Tensor, values: Tensor) -> Tensor:
    """Invert values from a threshold on."""
    threshold = 256 - _whole(levels, 256)
    return torch.where(values < threshold[:, None], values, 255 - values)[:, None]


# --- operations that move pixels ---------------------------------------------------------------------------------


def affine_maps(size: tuple[int, int] | torch.Size, operations: Tensor, levels: Tensor, signs: Tensor) -> Tensor:
    """Return (…, 2, 3), float64: where in the old image (x, y), in pixels, a place of the new one is taken from.

    Args:
        size: height and width.
        operations: (…), numbers of ``OPERATIONS``, or ``NOTHING``.
        levels: (…), 0 to 10.
        signs: (…), −1 or 1.
    """
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
    return torch.stack(rows, -1).unflatten(-1, (2, 3))


def _resample(images: Tensor, maps: Tensor) -> Tensor:
    """Return images resampled bilinearly, black where nothing was, rounded down as Pillow does."""
    grid = _grid(maps, *images.shape[-2:])
    inside = ((grid >= -1) & (grid < 1)).all(-1)
    moved = F.grid_sample(images.to(torch.float32), grid, mode="bilinear", padding_mode="border", align_corners=False)
    # what is a whole number but for the last bits of a float stays that number
    return moved.mul_(inside[:, None]).add_(1e-3).to(torch.uint8)


def _grid(maps: Tensor, height: int, width: int) -> Tensor:
    """Return float32 (n, h, w, 2), the places that pixels are taken from, −1 to 1 across and down an image.

    Only a row and a column an image are computed in float64; every pixel's place is the sum of two of their entries.
    """
    x = torch.arange(width, device=maps.device, dtype=torch.float64)[:, None] + 0.5
    y = torch.arange(height, device=maps.device, dtype=torch.float64)[:, None] + 0.5
    by_x, by_y, shift = maps[:, None].unbind(-1)  # (n, 1, 2) each
    across, down = by_x * x, by_y * y + shift  # (n, w, 2) and (n, h, 2), in pixels

    def scaled(places: Tensor) -> Tensor:
        return torch.stack((places[..., 0] * (2 / width), places[..., 1] * (2 / height)), -1)

    return scaled(across).to(torch.float32)[:, None] + (scaled(down) - 1).to(torch.float32)[:, :, None]


def _whole(levels: Tensor, highest: float) -> Tensor:
    """Return a level of 10 as a share of ``highest``, cut to a whole number."""
    return (levels * (highest / 10)).to(torch.int32)
