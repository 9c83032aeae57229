"""Noise of the sensor: Gaussian, shot, impulse and speckle."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from driftlaw.corruptions.registry import Numbers
from driftlaw.corruptions.rng import Draws


def gaussian_noise(images: Tensor, numbers: Numbers, draws: Draws) -> Tensor:
    """Add normal noise to every value."""
    (deviation,) = numbers
    return _normal_like(images, draws).mul_(255 * deviation).add_(images)


def speckle_noise(images: Tensor, numbers: Numbers, draws: Draws) -> Tensor:
    """Add normal noise in proportion to the value."""
    (deviation,) = numbers
    return _normal_like(images, draws).mul_(deviation).mul_(images).add_(images)


def impulse_noise(images: Tensor, numbers: Numbers, draws: Draws) -> Tensor:
    """Turn a share of the values, channel by channel, white or black with equal chance."""
    (share,) = numbers
    halves = draws.halves("impulse", images[0].numel()).reshape(images.shape)
    extremes = (halves & 1).to(images.dtype).mul_(255)
    # 31 bits from −2³⁰ on decide whether, the lowest bit which of the two.
    return torch.where(halves >> 1 < round(share * 2**31) - 2**30, extremes, images)


def shot_noise(images: Tensor, numbers: Numbers, draws: Draws) -> Tensor:
    """Count photons: every value becomes Poisson of ``rate`` times itself, over ``rate``.

    Drawn exactly, by Walker's alias method, from one table a grey level; float images take the nearest of 256 levels.
    """
    (rate,) = numbers
    thresholds, values, column_bits = _alias_tables(rate, images.device)
    halves = draws.halves("photons", images[0].numel()).reshape(images.shape)
    # A shift keeps the sign: columns run from −half of them on.
    columns = (halves >> (32 - column_bits)).add_(2 ** (column_bits - 1))
    cells = columns.add_(images.round().to(torch.int32).mul_(2**column_bits)).to(torch.int64)
    fractions = halves.bitwise_and_(2 ** (32 - column_bits) - 1)
    leaves = fractions >= torch.take(thresholds, cells)
    return torch.take(values, cells.mul_(2).add_(leaves))


def _normal_like(images: Tensor, draws: Draws) -> Tensor:
    return draws.normal("noise", images[0].numel()).view(images.shape)


@lru_cache(maxsize=32)
def _alias_tables(rate: float, device: torch.device) -> tuple[Tensor, Tensor, int]:
    """Return thresholds and value pairs of all cells (256 levels × columns, flat), and log₂ of the columns."""
    means = np.arange(256) / 255 * rate
    reach = int(9 * np.sqrt(rate) + 12)
    column_bits = int(np.ceil(np.log2(2 * reach + 1)))
    first = np.maximum(np.floor(means).astype(np.int64) - reach, 0)
    outcomes = first[:, None] + np.arange(2**column_bits)
    chances = _poisson_chances(outcomes, means)
    keep, other = _alias(chances)
    thresholds = np.round(keep * 2 ** (32 - column_bits)).astype(np.int32)
    values = _grey_levels(outcomes, rate)
    pairs = np.stack([values, np.take_along_axis(values, other, 1)], 2)
    flat = [torch.from_numpy(table).reshape(-1).to(device) for table in (thresholds, pairs)]
    return flat[0], flat[1], column_bits


def _grey_levels(photons: np.ndarray, rate: float) -> np.ndarray:
    """Return counts as grey levels in float32, never rounded up to a level that float64 does not reach."""
    levels = photons / rate * 255
    rounded = levels.astype(np.float32)
    return np.where(np.floor(rounded) > np.floor(levels), np.nextafter(rounded, np.float32(0)), rounded)


def _poisson_chances(outcomes: np.ndarray, means: np.ndarray) -> np.ndarray:
    log_factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, outcomes.max() + 1)))])
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = outcomes * np.log(means[:, None]) - means[:, None] - log_factorials[outcomes]
    logs[0] = np.where(outcomes[0] == 0, 0.0, -np.inf)
    chances = np.exp(logs)
    return chances / chances.sum(1, keepdims=True)


def _alias(chances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return, for every row of chances, the share of each cell that keeps its own outcome, and the other outcome."""
    rows, columns = chances.shape
    keep, other = np.ones_like(chances), np.tile(np.arange(columns), (rows, 1))
    for row in range(rows):
        share = (chances[row] * columns).tolist()
        poor = [cell for cell, value in enumerate(share) if value < 1]
        rich = [cell for cell, value in enumerate(share) if value >= 1]
        while poor and rich:
            cell, giver = poor.pop(), rich[-1]
            keep[row, cell], other[row, cell] = share[cell], giver
            share[giver] -= 1 - share[cell]
            if share[giver] < 1:
                poor.append(rich.pop())
    return keep, other
