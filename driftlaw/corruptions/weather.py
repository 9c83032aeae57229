"""Weather between the lens and the world: snow, frost, fog and brightness."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import torch
from torch import Tensor

from driftlaw.corruptions.blur import dragged
from driftlaw.corruptions.frost import frost
from driftlaw.corruptions.linear import exact, on_grid, sandwich, zoom_rows
from driftlaw.corruptions.registry import Numbers
from driftlaw.corruptions.rng import Draws

__all__ = ["brightness", "fog", "frost", "snow"]

_GREY = (0.299, 0.587, 0.114)


def brightness(images: Tensor, numbers: Numbers, draws: Draws) -> Tensor:
    """Raise the value of HSV; hue and saturation stay, so the three channels keep their proportions."""
    (added,) = numbers
    value = images.amax(1, keepdim=True)
    raised = (value + 255 * added).clamp_(max=255)
    return torch.where(value > 0, images * raised / value.clamp(min=2**-10), raised)


def snow(images: Tensor, numbers: Numbers, draws: Draws) -> Tensor:
    """Whiten the picture and lay wind-driven flakes over it, once as they fall and once turned by 180°."""
    *layer_numbers, image_share = numbers
    flakes = _flakes(images, tuple(layer_numbers), draws)
    red, green, blue = images.split(1, 1)
    white = (red * _GREY[0] + green * _GREY[1] + blue * _GREY[2]).mul_(1.5).add_(127.5)
    mixed = torch.maximum(images, white).mul_(1 - image_share).add_(images * image_share)
    return mixed.add_(flakes + flakes.flip(2, 3))


def _flakes(images: Tensor, numbers: Numbers, draws: Draws) -> Tensor:
    mean, deviation, zoom, threshold, radius, sigma = numbers
    count, _, height, width = images.shape
    layer = draws.normal("flakes", height * width).view(count, 1, height, width).mul_(deviation).add_(mean)
    if zoom != 1:
        rows, columns = (_zoom(size, zoom, images.device) for size in (height, width))
        layer = sandwich(on_grid(layer, 16), rows, columns)
    layer = torch.where(layer < threshold, 0, layer).clamp_(0, 1).mul_(255).floor_()
    return dragged(layer.to(torch.float32).contiguous(), radius, sigma, draws, -135.0, -45.0)


@lru_cache(maxsize=32)
def _zoom(size: int, factor: float, device: torch.device) -> Tensor:
    return exact(zoom_rows(size, factor)).to(device)


def fog(images: Tensor, numbers: Numbers, draws: Draws) -> Tensor:
    """Add a plasma fractal and scale back, so that the brightest value stays the brightest."""
    amount, decay = numbers
    height, width = images.shape[-2:]
    side = 1 << (max(height, width) - 1).bit_length()
    brightest = images.amax((1, 2, 3), keepdim=True)
    cloud = plasma(side, decay, draws)[:, None, :height, :width]
    fogged = images + cloud * (255 * amount)
    return fogged * (brightest / (brightest + 255 * amount))


def plasma(side: int, decay: float, draws: Draws) -> Tensor:
    """Return a height map in [0, 1] for every image by diamond and square, float32 (n, side, side); it wraps around.

    A new point is the mean of its four neighbours and a wobble; the wobble's size is the square of 100, 100/decay, …
    """
    wobbles = iter(draws.uniform("plasma", side * side).mul_(2).sub_(1).split(_plasma_sizes(side), 1))
    heights = torch.zeros(len(draws), side, side, device=draws.device)
    step, size = side, 100.0
    while step >= 2:
        _fill(heights, step, size * size, wobbles)
        step, size = step // 2, size / decay
    low, high = heights.amin((1, 2), keepdim=True), heights.amax((1, 2), keepdim=True)
    return (heights - low) / (high - low).clamp(min=1e-12)


def _plasma_sizes(side: int) -> list[int]:
    sizes, step = [], side
    while step >= 2:
        sizes += [(side // step) ** 2] * 3
        step //= 2
    return [*sizes, side * side - sum(sizes)]


def _fill(heights: Tensor, step: int, size: float, wobbles: Iterator[Tensor]) -> None:
    """Fill the middles of the squares, then of the two kinds of diamonds, of one step."""
    half = step // 2
    corners, middles = heights[:, ::step, ::step], heights[:, half::step, half::step]

    def around(total: Tensor) -> Tensor:
        return total / 4 + next(wobbles).view(total.shape) * size

    pairs = corners + corners.roll(-1, 1)
    middles.copy_(around(pairs + pairs.roll(-1, 2)))
    heights[:, ::step, half::step] = around(middles + middles.roll(1, 1) + (corners + corners.roll(-1, 2)))
    heights[:, half::step, ::step] = around(middles + middles.roll(1, 2) + (corners + corners.roll(-1, 1)))
