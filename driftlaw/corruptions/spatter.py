"""Spatter: drops of water or flecks of mud on the lens."""

from __future__ import annotations

import torch
from torch import Tensor

from driftlaw.corruptions.linear import filtered, gaussian, on_grid, padded, repeated
from driftlaw.corruptions.registry import Numbers
from driftlaw.corruptions.rng import Draws

_WATER = (175, 238, 238)
_MUD = (63, 42, 20)
# Canny's two thresholds on the sum of the absolute gradients.
_WEAK, _STRONG = 50, 150
# How far a chain of weak edges may lead away from a strong one.
_LINKS = 32
_FARTHEST = 20.0
# Borgefors' distances for the 5×5 mask: straight, diagonal, knight's move.
_STRAIGHT, _DIAGONAL, _KNIGHT = 1.0, 1.4, 2.1969
_RELIEF = ((-2.0, -1.0, 0.0), (-1.0, 1.0, 1.0), (0.0, 1.0, 2.0))


def spatter(images: Tensor, numbers: Numbers, draws: Draws) -> Tensor:
    """Cover parts of the picture with water (severities 1 to 3) or mud (4 and 5).

    Departs from the original: where no drop falls, the picture stays (the original divides by zero); a weak edge counts
    when a strong one is reached within 32 steps, not any number of them.
    """
    mean, deviation, smoothing, threshold, strength, mud = numbers
    count, _, height, width = images.shape
    layer = draws.normal("liquid", height * width).view(count, 1, height, width).mul_(deviation).add_(mean)
    layer = gaussian(on_grid(layer, 16), smoothing)
    layer = torch.where(layer < threshold, 0, layer)
    if mud:
        return _muddy(images, layer > threshold, strength)
    return _wet(images, (layer * 255).floor().to(torch.float32), strength)


def _colour(values: tuple[int, int, int], images: Tensor) -> Tensor:
    return torch.tensor(values, dtype=images.dtype, device=images.device).view(1, 3, 1, 1)


def _muddy(images: Tensor, flecks: Tensor, smoothing: float) -> Tensor:
    cover = gaussian(flecks.to(torch.float64), smoothing).to(torch.float32)
    cover = torch.where(cover < 0.8, 0, cover)
    return images * (1 - cover) + _colour(_MUD, images) * cover


def _wet(images: Tensor, layer: Tensor, strength: float) -> Tensor:
    relief = layer * _relief(_distances(_edges(layer)))
    highest = relief.amax((2, 3), keepdim=True)
    return images + _colour(_WATER, images) * (relief / highest.clamp(min=1) * strength)


def _relief(distances: Tensor) -> Tensor:
    """Turn distances into a picture lit from one side."""
    # Nine equal distances must give their own mean, not the level below it.
    spread = _equalised(_box(distances).add_(1e-6).floor_())
    lit = filtered(spread, torch.tensor(_RELIEF, dtype=torch.float64)).clamp_(0, 255)
    return _box(lit).add_(0.5).floor_()


def _box(values: Tensor) -> Tensor:
    return filtered(values, torch.ones(3, 3, dtype=torch.float64)).mul_(1 / 9)


def _equalised(levels: Tensor) -> Tensor:
    """Spread whole levels (0 to 20) so that their histogram over each image is level, in whole numbers up to 255."""
    count, pixels = len(levels), levels[0].numel()
    flat = levels.view(count, pixels).to(torch.int64)
    histogram = torch.zeros(count, 256, dtype=torch.int64, device=levels.device)
    histogram.scatter_add_(1, flat, torch.ones_like(flat))
    reached = histogram.cumsum(1)
    lowest = histogram.gather(1, flat.amin(1, keepdim=True))
    scale = 255 / (pixels - lowest).clamp(min=1).to(torch.float32)
    table = ((reached - lowest).to(torch.float32) * scale).round().clamp(0, 255)
    constant = lowest == pixels
    spread = torch.where(constant, flat.to(torch.float32), table.gather(1, flat))
    return spread.view(levels.shape)


def _shift(values: Tensor, down: int, across: int) -> Tensor:
    """Return what lies ``down`` and ``across`` from every pixel of a map padded by two."""
    height, width = values.shape[-2] - 4, values.shape[-1] - 4
    return values[..., 2 + down : 2 + down + height, 2 + across : 2 + across + width]


def _edges(layer: Tensor) -> Tensor:
    """Return Canny's edges of an 8-bit layer: Sobel, thin ridges, weak edges kept where they touch strong ones."""
    wide = padded(layer, 2, 2, repeated)
    near = {(y, x): _shift(wide, y, x) for y in (-1, 0, 1) for x in (-1, 0, 1)}
    across = near[-1, 1] + 2 * near[0, 1] + near[1, 1] - near[-1, -1] - 2 * near[0, -1] - near[1, -1]
    down = near[1, -1] + 2 * near[1, 0] + near[1, 1] - near[-1, -1] - 2 * near[-1, 0] - near[-1, 1]
    size = across.abs() + down.abs()
    ridge = _ridge(size, across, down)
    return _linked(ridge & (size > _STRONG), ridge & (size > _WEAK))


def _ridge(size: Tensor, across: Tensor, down: Tensor) -> Tensor:
    """Tell where the gradient is larger than that of its two neighbours along its own direction."""
    wide = torch.nn.functional.pad(size, (2, 2, 2, 2))
    steep, flat = down.abs() > across.abs() * 2.414213562, down.abs() < across.abs() * 0.414213562
    level = (size > _shift(wide, 0, -1)) & (size >= _shift(wide, 0, 1))
    upright = (size > _shift(wide, -1, 0)) & (size >= _shift(wide, 1, 0))
    falling = (size > _shift(wide, -1, -1)) & (size > _shift(wide, 1, 1))
    rising = (size > _shift(wide, -1, 1)) & (size > _shift(wide, 1, -1))
    slanted = torch.where(across * down < 0, rising, falling)
    return torch.where(flat, level, torch.where(steep, upright, slanted))


def _linked(strong: Tensor, weak: Tensor) -> Tensor:
    reached, allowed = strong.to(torch.float32), weak.to(torch.float32)
    for _ in range(_LINKS):
        reached = torch.nn.functional.max_pool2d(reached, 3, 1, 1) * allowed
    return reached > 0


def _distances(edges: Tensor) -> Tensor:
    """Return the distance of every pixel to the nearest edge, 20 at most, in steps of the 5×5 mask."""
    distances = torch.where(edges, 0.0, _FARTHEST).to(torch.float32)
    steps = [(y, x, _length(y, x)) for y in range(-2, 3) for x in range(-2, 3) if _length(y, x)]
    for _ in range(int(_FARTHEST)):
        wide = torch.nn.functional.pad(distances, (2, 2, 2, 2), value=_FARTHEST)
        for y, x, length in steps:
            distances = torch.minimum(distances, _shift(wide, y, x) + length)
    return distances


def _length(down: int, across: int) -> float:
    """Return the length of a step of the mask, 0 for what is no step."""
    short, long = sorted((abs(down), abs(across)))
    return {(0, 1): _STRAIGHT, (1, 1): _DIAGONAL, (1, 2): _KNIGHT}.get((short, long), 0.0)
