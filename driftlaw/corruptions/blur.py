"""Blur: defocus, glass, motion, zoom and Gaussian."""

import math
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from driftlaw.corruptions import linear
from driftlaw.corruptions.registry import Parameters
from driftlaw.corruptions.rng import CounterRNG

# A chain of copies in glass blur grows by one link with a probability below 1/2: 2⁸ links never occur.
_CHAIN_DOUBLINGS = 8
_DENSE_PIXELS = 1024  # up to this size zoom blur is one matrix over all pixels, split into bands


def gaussian_blur(images: Tensor, parameters: Parameters, rng: CounterRNG) -> Tensor:
    """Blur with a Gaussian, with edge pixels repeated."""
    (sigma,) = parameters
    return linear.gaussian_filter(images, sigma)


def defocus_blur(images: Tensor, parameters: Parameters, rng: CounterRNG) -> Tensor:
    """Correlate with a disk whose edge is smoothed by a small Gaussian."""
    radius, alias_blur = parameters
    return linear.correlate(images, _disk(radius, alias_blur))


@lru_cache(maxsize=32)
def _disk(radius: float, alias_blur: float) -> Tensor:
    reach, soft = (8, 1) if radius <= 8 else (int(radius), 2)
    line = torch.arange(-reach, reach + 1, dtype=torch.float64)
    disk = (line[:, None] ** 2 + line**2 <= radius**2).to(torch.float64)
    rim = torch.exp(-0.5 * (torch.arange(-soft, soft + 1, dtype=torch.float64) / alias_blur) ** 2)
    rim /= rim.sum()
    # The border of the kernel is mirrored, so that a disk that fills it keeps its sum.
    disk /= disk.sum()
    for _ in ("rows", "columns"):
        disk = (linear.mirror_pad(disk, 0, soft).unfold(1, len(rim), 1) @ rim).mT
    return linear.quantize_rows(disk.reshape(1, -1), 24).view(disk.shape)


def glass_blur(images: Tensor, parameters: Parameters, rng: CounterRNG) -> Tensor:
    """Blur, replace pixels by near neighbours in scan order, and blur again.

    The original code writes a swap, but both sides of it are views: the current pixel becomes a copy of its neighbour
    and the neighbour stays. CIFAR-C and ImageNet-C were made that way, so this code does the same. Pixels are scanned
    from the lower right to the upper left. A neighbour that was scanned earlier passes on the value it copied itself.
    """
    sigma, reach, rounds = parameters[0], int(parameters[1]), int(parameters[2])
    height, width = images.shape[-2:]
    pixels = linear.gaussian_filter(images, sigma).floor().to(torch.float32).flatten(2)
    for round_index in range(rounds):
        sources = _glass_source_indices(height, width, reach, rng, round_index)
        pixels = pixels.gather(2, sources[:, None].expand_as(pixels))
    return linear.gaussian_filter(pixels.view(images.shape), sigma)


def _glass_source_indices(height: int, width: int, reach: int, rng: CounterRNG, round_index: int) -> Tensor:
    """Return for every image and pixel the flat index its value comes from in one round, int64 (n, h·w)."""
    count, pixels = height * width, torch.arange(height * width, device=rng.device)
    rows, columns = pixels // width, pixels % width
    scanned = (rows > reach) & (rows <= height - reach) & (columns > reach) & (columns <= width - reach)
    jumps = rng.words(f"jumps {round_index}", 2 * count, torch.int16).to(torch.int32).view(-1, 2, count)
    jumps = jumps.add_(2**15).mul_(2 * reach).bitwise_right_shift_(16).sub_(reach)
    targets = (jumps[:, 0] * width).add_(jumps[:, 1]).mul_(scanned) + pixels
    if reach == 1:
        return targets
    # Follow every chain of copies to the pixel whose value it passes on, by doubling the length of all jumps.
    scanned_earlier = (targets > pixels) & scanned[targets]
    links = torch.where(scanned_earlier, targets, targets + count)
    links = torch.cat([links, (pixels + count).expand_as(targets)], 1)
    for _ in range(_CHAIN_DOUBLINGS):
        links = links.gather(1, links)
    return links[:, :count] - count


def motion_blur(images: Tensor, parameters: Parameters, rng: CounterRNG) -> Tensor:
    """Blur along a line within 45° of the horizontal."""
    radius, sigma = parameters
    return directional_blur(images.round(), radius, sigma, rng, -45.0, 45.0)


def directional_blur(images: Tensor, radius: float, sigma: float, rng: CounterRNG, low: float, high: float) -> Tensor:
    """Return images blurred along a random direction in (low, high) degrees, in whole gray levels.

    As in ImageMagick: half a Gaussian of 2·radius + 1 weights that starts at the current pixel. Each weight is applied
    at the nearest whole pixel along the line, with edge pixels repeated. The sum is rounded down to a whole gray level,
    because the original's output is half a level darker than the clean images.
    """
    weights = _half_gaussian(2 * math.ceil(radius) + 1, sigma)
    taps = len(weights)
    left = taps - 1 if low < -90 or high > 90 else 0
    wide = torch.nn.functional.pad(images, (left, taps - 1, 0, 0), mode="replicate")
    runs = linear.sliding_windows(wide.view(-1), images.shape[-1])
    total = torch.zeros(images.shape[:3].numel(), images.shape[-1], device=images.device)
    starts = _tap_indices(wide, taps, left, rng.direction("angle", low, high))
    for weight, rows in zip(weights, starts, strict=True):
        # Whole gray levels times quantized weights: this sum is exact in float32.
        total.add_(runs.index_select(0, rows), alpha=weight)
    return total.floor_().view(images.shape)


def _tap_indices(wide: Tensor, taps: int, left: int, direction: tuple[Tensor, Tensor]) -> Tensor:
    """Return the flat index in the padded images at which each weight of each image row starts, int64 (taps, n·c·h)."""
    count, channels, height, stride = wide.shape
    along = torch.arange(taps, dtype=torch.float64, device=wide.device)[:, None]
    across, down = (torch.ceil(along * part - 0.5).to(torch.int64)[:, :, None, None] for part in direction)
    planes = torch.arange(count * channels, device=wide.device).view(count, channels, 1) * height
    rows = torch.arange(height, device=wide.device)
    lines = (rows + down).clamp_(0, height - 1) * stride + (across + left)
    return (planes * stride + lines).view(taps, -1)


@lru_cache(maxsize=32)
def _half_gaussian(taps: int, sigma: float) -> tuple[float, ...]:
    """Return the weights of half a Gaussian, without those at the far end that are quantized to zero."""
    weights = torch.exp(-0.5 * (torch.arange(taps, dtype=torch.float64) / sigma) ** 2)
    return tuple(weight for weight in linear.quantize_rows(weights / weights.sum()).tolist() if weight)


def zoom_blur(images: Tensor, parameters: Parameters, rng: CounterRNG) -> Tensor:
    """Average the image with zooms into its middle."""
    height, width = images.shape[-2:]
    factors = tuple(np.arange(1, *parameters).tolist())
    if height * width <= _DENSE_PIXELS:
        return linear.apply_bands(images, _zoom_bands(height, width, factors, images.device))
    total = images.clone()
    for factor in factors:
        zoomed = images
        for axis in (-2, -1):
            zoomed = _apply_sparse_rows(zoomed, linear.zoom_matrix(images.shape[axis], factor), axis)
        total += zoomed
    return total / (len(factors) + 1)


@lru_cache(maxsize=16)
def _zoom_bands(height: int, width: int, factors: tuple[float, ...], device: torch.device) -> linear.Bands:
    total = torch.eye(height * width, dtype=torch.float64)
    for factor in factors:
        total += torch.kron(linear.zoom_matrix(height, factor), linear.zoom_matrix(width, factor))
    return linear.split_into_bands(linear.quantize_rows(total / (len(factors) + 1)), height, width, device)


def _apply_sparse_rows(images: Tensor, rows: Tensor, axis: int) -> Tensor:
    """Apply a matrix with at most two nonzero weights per row along an axis, by indexing."""
    weights, indices = rows.topk(2, dim=1)
    shape = (-1, 1) if axis == -2 else (-1,)
    first, second = (
        images.index_select(axis, indices[:, k].to(images.device)) * weights[:, k].to(images).view(shape)
        for k in (0, 1)
    )
    return first + second
