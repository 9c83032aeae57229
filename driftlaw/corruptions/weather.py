"""Weather: snow, fog and brightness; ``frost.py`` has frost."""

from functools import lru_cache

import torch
from torch import Tensor

from driftlaw.corruptions.blur import directional_blur
from driftlaw.corruptions.linear import apply_separable, quantize, quantize_rows, zoom_matrix
from driftlaw.corruptions.registry import Parameters
from driftlaw.corruptions.rng import CounterRNG

_LUMA = (0.299, 0.587, 0.114)


def brightness(images: Tensor, parameters: Parameters, rng: CounterRNG) -> Tensor:
    """Increase the value of HSV. Hue and saturation stay, so the three channels keep their proportions."""
    (added,) = parameters
    value = images.amax(1, keepdim=True)
    raised = (value + 255 * added).clamp_(max=255)
    return torch.where(value > 0, images * raised / value.clamp(min=2**-10), raised)


def snow(images: Tensor, parameters: Parameters, rng: CounterRNG) -> Tensor:
    """Whiten the image and add wind-blown flakes, once as they fall and once rotated by 180°."""
    mean, deviation, zoom, threshold, radius, sigma, image_share = parameters
    count, _, height, width = images.shape
    layer = rng.normal("flakes", height * width).view(count, 1, height, width).mul_(deviation).add_(mean)
    if zoom != 1:
        rows, columns = (_quantized_zoom_matrix(size, zoom, images.device) for size in (height, width))
        layer = apply_separable(quantize(layer, 16), rows, columns)
    layer = torch.where(layer < threshold, 0, layer).clamp_(0, 1).mul_(255).floor_()
    flakes = directional_blur(layer.to(torch.float32).contiguous(), radius, sigma, rng, -135.0, -45.0)
    red, green, blue = torch.split(images, 1, 1)
    white = (red * _LUMA[0] + green * _LUMA[1] + blue * _LUMA[2]).mul_(1.5).add_(127.5)
    mixed = torch.maximum(images, white).mul_(1 - image_share).add_(images * image_share)
    return mixed.add_(flakes + flakes.flip(2, 3))


@lru_cache(maxsize=32)
def _quantized_zoom_matrix(size: int, factor: float, device: torch.device) -> Tensor:
    return quantize_rows(zoom_matrix(size, factor)).to(device)


def fog(images: Tensor, parameters: Parameters, rng: CounterRNG) -> Tensor:
    """Add a plasma fractal and rescale, so that the brightest value stays the brightest."""
    amount, decay = parameters
    height, width = images.shape[-2:]
    side = 1 << (max(height, width) - 1).bit_length()
    brightest = images.amax((1, 2, 3), keepdim=True)
    cloud = plasma_fractal(side, decay, rng)[:, None, :height, :width]
    fogged = images + cloud * (255 * amount)
    return fogged * (brightest / (brightest + 255 * amount))


def plasma_fractal(side: int, decay: float, rng: CounterRNG) -> Tensor:
    """Return a periodic height map in [0, 1] for every image by the diamond-square algorithm, float32 (n, side, side).

    A new point is the mean of its four neighbours plus a random offset. The range of the offset is the square of 100,
    100/decay, 100/decay², …
    """
    uniform = rng.uniform("plasma", side * side).mul_(2).sub_(1)
    heights = torch.zeros(len(rng), side, side, device=rng.device)
    step, size, used = side, 100.0, 0

    def displaced_mean(total: Tensor) -> Tensor:
        nonlocal used
        offsets = uniform[:, used : used + total[0].numel()].view(total.shape)
        used += total[0].numel()
        return total / 4 + offsets * (size * size)

    while step >= 2:  # the centres of the squares, then of the two kinds of diamonds
        half = step // 2
        corners, middles = heights[:, ::step, ::step], heights[:, half::step, half::step]
        pairs = corners + corners.roll(-1, 1)
        middles.copy_(displaced_mean(pairs + pairs.roll(-1, 2)))
        across, down = corners + corners.roll(-1, 2), corners + corners.roll(-1, 1)
        heights[:, ::step, half::step] = displaced_mean(middles + middles.roll(1, 1) + across)
        heights[:, half::step, ::step] = displaced_mean(middles + middles.roll(1, 2) + down)
        step, size = half, size / decay
    low, high = heights.amin((1, 2), keepdim=True), heights.amax((1, 2), keepdim=True)
    return (heights - low) / (high - low).clamp(min=1e-12)
