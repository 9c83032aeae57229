"""Spatter: drops of water or flecks of mud on the lens."""

import torch
import torch.nn.functional as F
from torch import Tensor

from driftlaw.corruptions.linear import correlate, gaussian_filter, quantize
from driftlaw.corruptions.registry import Parameters
from driftlaw.corruptions.rng import CounterRNG

_WATER = (175, 238, 238)
_MUD = (63, 42, 20)
# Canny's thresholds on the sum of the absolute gradients.
_WEAK, _STRONG = 50, 150
# Largest number of weak edge pixels in a chain from a strong one.
_HYSTERESIS_STEPS = 32
_MAX_DISTANCE = 20.0
# Borgefors' distances of the 5×5 mask, by sorted offset: straight, diagonal, knight's move.
_STEP_LENGTHS = {(0, 1): 1.0, (1, 1): 1.4, (1, 2): 2.1969}
_RELIEF = ((-2.0, -1.0, 0.0), (-1.0, 1.0, 1.0), (0.0, 1.0, 2.0))


def spatter(images: Tensor, parameters: Parameters, rng: CounterRNG) -> Tensor:
    """Cover parts of the image with water (severities 1 to 3) or mud (4 and 5).

    Differences from the original: an image without drops stays unchanged (the original divides by zero). A weak edge is
    kept if a strong edge is within 32 steps, not any number of steps.
    """
    mean, deviation, smoothing, threshold, strength, mud = parameters
    count, _, height, width = images.shape
    layer = rng.normal("liquid", height * width).view(count, 1, height, width).mul_(deviation).add_(mean)
    layer = gaussian_filter(quantize(layer, 16), smoothing)
    layer = torch.where(layer < threshold, 0, layer)
    color = torch.tensor(_MUD if mud else _WATER, dtype=images.dtype, device=images.device).view(1, 3, 1, 1)
    if mud:
        cover = gaussian_filter((layer > threshold).to(torch.float64), strength).to(torch.float32)
        cover = torch.where(cover < 0.8, 0, cover)
        return images * (1 - cover) + color * cover
    drops = (layer * 255).floor().to(torch.float32)
    # Without the small number, the mean of nine equal distances could be rounded down to the level below.
    distances = _box_filter(_distance_transform(_canny_edges(drops))).add_(1e-6).floor_()
    lit = correlate(_equalize_histogram(distances), torch.tensor(_RELIEF, dtype=torch.float64)).clamp_(0, 255)
    relief = drops * _box_filter(lit).add_(0.5).floor_()
    highest = relief.amax((2, 3), keepdim=True)
    return images + color * (relief / highest.clamp(min=1) * strength)


def _box_filter(values: Tensor) -> Tensor:
    return correlate(values, torch.ones(3, 3, dtype=torch.float64)).mul_(1 / 9)


def _equalize_histogram(levels: Tensor) -> Tensor:
    """Equalize the histogram of whole levels (0 to 20) of each image, to whole numbers up to 255."""
    count, pixels = len(levels), levels[0].numel()
    flat = levels.view(count, pixels).to(torch.int64)
    histogram = torch.zeros(count, 256, dtype=torch.int64, device=levels.device)
    histogram.scatter_add_(1, flat, torch.ones_like(flat))
    cumulative = histogram.cumsum(1)
    lowest = histogram.gather(1, flat.amin(1, keepdim=True))
    scale = 255 / (pixels - lowest).clamp(min=1).to(torch.float32)
    table = ((cumulative - lowest).to(torch.float32) * scale).round().clamp(0, 255)
    constant = lowest == pixels
    return torch.where(constant, flat.to(torch.float32), table.gather(1, flat)).view(levels.shape)


def _shift(values: Tensor, down: int, across: int) -> Tensor:
    """Return the values ``down`` and ``across`` from every pixel of a map that is padded by two."""
    height, width = values.shape[-2] - 4, values.shape[-1] - 4
    return values[..., 2 + down : 2 + down + height, 2 + across : 2 + across + width]


def _canny_edges(layer: Tensor) -> Tensor:
    """Return Canny's edges of an 8-bit layer: Sobel gradients, non-maximum suppression, hysteresis."""
    wide = F.pad(layer, (2, 2, 2, 2), mode="replicate")
    near = {(y, x): _shift(wide, y, x) for y in (-1, 0, 1) for x in (-1, 0, 1)}
    across = near[-1, 1] + 2 * near[0, 1] + near[1, 1] - near[-1, -1] - 2 * near[0, -1] - near[1, -1]
    down = near[1, -1] + 2 * near[1, 0] + near[1, 1] - near[-1, -1] - 2 * near[-1, 0] - near[-1, 1]
    size = across.abs() + down.abs()
    ridge = _non_maximum_suppression(size, across, down)
    connected, weak = (ridge & (size > _STRONG)).to(torch.float32), (ridge & (size > _WEAK)).to(torch.float32)
    for _ in range(_HYSTERESIS_STEPS):
        connected = F.max_pool2d(connected, 3, 1, 1) * weak
    return connected > 0


def _non_maximum_suppression(size: Tensor, across: Tensor, down: Tensor) -> Tensor:
    """Return True where the gradient is larger than at the two neighbours along its direction."""
    wide = F.pad(size, (2, 2, 2, 2))
    steep, flat = down.abs() > across.abs() * 2.414213562, down.abs() < across.abs() * 0.414213562
    level = (size > _shift(wide, 0, -1)) & (size >= _shift(wide, 0, 1))
    upright = (size > _shift(wide, -1, 0)) & (size >= _shift(wide, 1, 0))
    falling = (size > _shift(wide, -1, -1)) & (size > _shift(wide, 1, 1))
    rising = (size > _shift(wide, -1, 1)) & (size > _shift(wide, 1, -1))
    slanted = torch.where(across * down < 0, rising, falling)
    return torch.where(flat, level, torch.where(steep, upright, slanted))


def _distance_transform(edges: Tensor) -> Tensor:
    """Return the distance of every pixel to the nearest edge, at most 20, in steps of the 5×5 mask."""
    distances = torch.where(edges, 0.0, _MAX_DISTANCE).to(torch.float32)
    offsets = [(y, x, (min(abs(y), abs(x)), max(abs(y), abs(x)))) for y in range(-2, 3) for x in range(-2, 3)]
    steps = [(y, x, _STEP_LENGTHS[key]) for y, x, key in offsets if key in _STEP_LENGTHS]
    for _ in range(int(_MAX_DISTANCE)):
        wide = F.pad(distances, (2, 2, 2, 2), value=_MAX_DISTANCE)
        for y, x, length in steps:
            distances = torch.minimum(distances, _shift(wide, y, x) + length)
    return distances
