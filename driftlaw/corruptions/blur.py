"""Blur of the lens, the hand and the window pane: defocus, glass, motion, zoom and Gaussian."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from driftlaw.corruptions.linear import (
    Bands,
    banded,
    bands_of,
    correlation_matrix,
    exact,
    filtered,
    gaussian,
    mirrored,
    padded,
    windows,
    zoom_rows,
)
from driftlaw.corruptions.registry import Numbers
from driftlaw.corruptions.rng import Draws

# A chain of copies in glass blur grows by one link with a chance under one half; none of 2⁸ links will ever be drawn.
_CHAIN_DOUBLINGS = 8
# Up to this many pixels a blur is one matrix over all of them, cut into bands.
_DENSE_PIXELS = 1024


def gaussian_blur(images: Tensor, numbers: Numbers, draws: Draws) -> Tensor:
    """Blur with a Gaussian, edge pixels repeated."""
    (sigma,) = numbers
    return gaussian(images, sigma)


def defocus_blur(images: Tensor, numbers: Numbers, draws: Draws) -> Tensor:
    """Correlate with a disk whose rim is softened by a small Gaussian."""
    radius, alias_blur = numbers
    height, width = images.shape[-2:]
    if height * width <= _DENSE_PIXELS:
        return banded(images, _disk_bands(height, width, radius, alias_blur, images.device))
    return filtered(images, _disk(radius, alias_blur))


@lru_cache(maxsize=16)
def _disk_bands(height: int, width: int, radius: float, alias_blur: float, device: torch.device) -> Bands:
    return bands_of(correlation_matrix(_disk(radius, alias_blur), height, width), height, width, device)


@lru_cache(maxsize=32)
def _disk(radius: float, alias_blur: float) -> Tensor:
    reach, soft = (8, 1) if radius <= 8 else (int(radius), 2)
    line = torch.arange(-reach, reach + 1, dtype=torch.float64)
    disk = (line[:, None] ** 2 + line**2 <= radius**2).to(torch.float64)
    rim = torch.exp(-0.5 * (torch.arange(-soft, soft + 1, dtype=torch.float64) / alias_blur) ** 2)
    rim /= rim.sum()
    # The kernel's own border is mirrored: a disk that fills it loses nothing.
    soft_disk = _correlated(_correlated(disk / disk.sum(), rim).mT, rim).mT
    return exact(soft_disk.reshape(1, -1), 24).view(soft_disk.shape)


def _correlated(lines: Tensor, weights: Tensor) -> Tensor:
    reach = len(weights) // 2
    return padded(lines, 0, reach, mirrored).unfold(1, len(weights), 1) @ weights


def glass_blur(images: Tensor, numbers: Numbers, draws: Draws) -> Tensor:
    """Blur, replace pixels by near neighbours in scan order, blur again.

    The original writes a swap, but both of its sides are views, so the pixel at hand becomes a copy of its neighbour
    and the neighbour stays; CIFAR-C and ImageNet-C were made so, and so it is here. The pixels are scanned from the
    lower right to the upper left: a neighbour already passed hands on what it copied itself.
    """
    sigma, reach, rounds = numbers[0], int(numbers[1]), int(numbers[2])
    height, width = images.shape[-2:]
    pixels = gaussian(images, sigma).floor().to(torch.float32).flatten(2)
    for turn in range(rounds):
        sources = _glass_sources(height, width, reach, draws, turn)
        pixels = pixels.gather(2, sources[:, None].expand_as(pixels))
    return gaussian(pixels.view(images.shape), sigma)


def _glass_sources(height: int, width: int, reach: int, draws: Draws, turn: int) -> Tensor:
    """Return for every image and pixel the flat place its value comes from in one round, int64 (n, h·w)."""
    places = torch.arange(height * width, device=draws.device)
    jumps = draws.quarters(f"jumps {turn}", 2 * height * width).to(torch.int32).view(-1, 2, height * width)
    jumps = jumps.add_(2**15).mul_(2 * reach).bitwise_right_shift_(16).sub_(reach)
    scanned = _inside(places // width, height, reach) & _inside(places % width, width, reach)
    targets = (jumps[:, 0] * width).add_(jumps[:, 1]).mul_(scanned) + places
    if reach == 1:
        return targets
    return _chased(targets, places, scanned)


def _inside(position: Tensor, size: int, reach: int) -> Tensor:
    return (position > reach) & (position <= size - reach)


def _chased(targets: Tensor, places: Tensor, scanned: Tensor) -> Tensor:
    """Follow every chain of copies to the pixel whose value it hands on, by doubling the length of all jumps."""
    count = len(places)
    passed = (targets > places) & scanned[targets]
    links = torch.where(passed, targets, targets + count)
    links = torch.cat([links, (places + count).expand_as(targets)], 1)
    for _ in range(_CHAIN_DOUBLINGS):
        links = links.gather(1, links)
    return links[:, :count] - count


def motion_blur(images: Tensor, numbers: Numbers, draws: Draws) -> Tensor:
    """Drag the picture along a line within 45° of the horizontal."""
    radius, sigma = numbers
    return dragged(images.round(), radius, sigma, draws, -45.0, 45.0)


def dragged(images: Tensor, radius: float, sigma: float, draws: Draws, low: float, high: float) -> Tensor:
    """Return pictures dragged along a random angle in (low, high) degrees, in whole grey levels.

    As ImageMagick does it: half a Gaussian of 2·radius + 1 taps, the pixel at hand first, each tap at the nearest whole
    pixel along the line, edge pixels repeated, the sum cut to a whole grey level (as the statistics of the original's
    output show: half a level darker than the clean images).
    """
    weights = _half_gaussian(2 * math.ceil(radius) + 1, sigma)
    taps = len(weights)
    left = taps - 1 if low < -90 or high > 90 else 0
    wide = torch.nn.functional.pad(images, (left, taps - 1, 0, 0), mode="replicate")
    runs = windows(wide.view(-1), images.shape[-1])
    total = torch.zeros(images.shape[:3].numel(), images.shape[-1], device=images.device)
    places = _tap_places(wide, taps, left, draws.direction("angle", low, high))
    for weight, rows in zip(weights, places, strict=True):
        # Whole grey levels times weights on the grid: this sum is exact in float32.
        total.add_(runs.index_select(0, rows), alpha=weight)
    return total.floor_().view(images.shape)


def _tap_places(wide: Tensor, taps: int, left: int, direction: tuple[Tensor, Tensor]) -> Tensor:
    """Return where in the flat, widened images each tap of each image row begins, int64 (taps, n·c·h)."""
    count, channels, height, stride = wide.shape
    along = torch.arange(taps, dtype=torch.float64, device=wide.device)[:, None]
    across, down = (torch.ceil(along * part - 0.5).to(torch.int64)[:, :, None, None] for part in direction)
    planes = torch.arange(count * channels, device=wide.device).view(count, channels, 1) * height
    rows = torch.arange(height, device=wide.device)
    lines = (rows + down).clamp_(0, height - 1) * stride + (across + left)
    return (planes * stride + lines).view(taps, -1)


@lru_cache(maxsize=32)
def _half_gaussian(taps: int, sigma: float) -> tuple[float, ...]:
    """Return the weights of the taps; those at the far end that are zero on the grid are left out."""
    weights = torch.exp(-0.5 * (torch.arange(taps, dtype=torch.float64) / sigma) ** 2)
    return tuple(weight for weight in exact(weights / weights.sum()).tolist() if weight)


def zoom_blur(images: Tensor, numbers: Numbers, draws: Draws) -> Tensor:
    """Average the picture with zooms into its middle."""
    height, width = images.shape[-2:]
    if height * width <= _DENSE_PIXELS:
        return banded(images, _zoom_bands(height, width, *numbers, images.device))
    return _zoom_average(images, *numbers)


def _zoom_factors(end: float, step: float) -> list[float]:
    return np.arange(1, end, step).tolist()


@lru_cache(maxsize=16)
def _zoom_bands(height: int, width: int, end: float, step: float, device: torch.device) -> Bands:
    factors = _zoom_factors(end, step)
    total = torch.eye(height * width, dtype=torch.float64)
    for factor in factors:
        total += torch.kron(zoom_rows(height, factor), zoom_rows(width, factor))
    return bands_of(exact(total / (len(factors) + 1)), height, width, device)


def _zoom_average(images: Tensor, end: float, step: float) -> Tensor:
    factors = _zoom_factors(end, step)
    total = images.clone()
    for factor in factors:
        rows, columns = (zoom_rows(size, factor) for size in images.shape[-2:])
        total += _sampled(_sampled(images, rows, -2), columns, -1)
    return total / (len(factors) + 1)


def _sampled(images: Tensor, rows: Tensor, axis: int) -> Tensor:
    """Apply a matrix with at most two weights a row along an axis, by picking and weighting."""
    shares, places = rows.topk(2, dim=1)
    shape = (-1, 1) if axis == -2 else (-1,)
    first, second = (
        images.index_select(axis, places[:, k].to(images.device)) * shares[:, k].to(images).view(shape) for k in (0, 1)
    )
    return first + second
