"""Sensor noise: Gaussian, shot, impulse and speckle noise."""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from driftlaw.corruptions.registry import Parameters
from driftlaw.corruptions.rng import CounterRNG


def gaussian_noise(images: Tensor, parameters: Parameters, rng: CounterRNG) -> Tensor:
    """Add normal noise to every value."""
    (deviation,) = parameters
    return rng.normal("noise", images[0].numel()).view(images.shape).mul_(255 * deviation).add_(images)


def speckle_noise(images: Tensor, parameters: Parameters, rng: CounterRNG) -> Tensor:
    """Add normal noise that is proportional to the value."""
    (deviation,) = parameters
    return rng.normal("noise", images[0].numel()).view(images.shape).mul_(deviation).mul_(images).add_(images)


def impulse_noise(images: Tensor, parameters: Parameters, rng: CounterRNG) -> Tensor:
    """Replace a fraction of the values, independently per channel, by black or white with equal probability."""
    (fraction,) = parameters
    words = rng.words("impulse", images[0].numel(), torch.int32).reshape(images.shape)
    extremes = (words & 1).to(images.dtype).mul_(255)
    # The upper 31 bits, from −2³⁰, decide whether a value is replaced; the lowest bit decides between black and white.
    return torch.where(words >> 1 < round(fraction * 2**31) - 2**30, extremes, images)


def shot_noise(images: Tensor, parameters: Parameters, rng: CounterRNG) -> Tensor:
    """Replace every value x in [0, 1] by Poisson(rate · x) / rate.

    Sampled exactly with Walker's alias method, from one table per gray level. Float images are rounded to 256 levels.
    """
    (rate,) = parameters
    thresholds, values, column_bits = _alias_tables(rate, images.device)
    words = rng.words("photons", images[0].numel(), torch.int32).reshape(images.shape)
    # An arithmetic shift keeps the sign: columns start at minus half their number.
    columns = (words >> (32 - column_bits)).add_(2 ** (column_bits - 1))
    cells = columns.add_(images.round().to(torch.int32).mul_(2**column_bits)).to(torch.int64)
    fractions = words.bitwise_and_(2 ** (32 - column_bits) - 1)
    use_alias = fractions >= torch.take(thresholds, cells)
    return torch.take(values, cells.mul_(2).add_(use_alias))


@lru_cache(maxsize=32)
def _alias_tables(rate: float, device: torch.device) -> tuple[Tensor, Tensor, int]:
    """Return thresholds and value pairs of all cells (256 levels × columns, flat), and log₂ of the columns."""
    means = np.arange(256) / 255 * rate
    reach = int(9 * np.sqrt(rate) + 12)
    column_bits = int(np.ceil(np.log2(2 * reach + 1)))
    first = np.maximum(np.floor(means).astype(np.int64) - reach, 0)
    outcomes = first[:, None] + np.arange(2**column_bits)
    keep, other = _alias_method(_poisson_probabilities(outcomes, means))
    thresholds = np.round(keep * 2 ** (32 - column_bits)).astype(np.int32)
    # Counts as gray levels in float32, never rounded up to a level that float64 does not reach.
    levels = outcomes / rate * 255
    rounded = levels.astype(np.float32)
    values = np.where(np.floor(rounded) > np.floor(levels), np.nextafter(rounded, np.float32(0)), rounded)
    pairs = np.stack([values, np.take_along_axis(values, other, 1)], 2)
    flat = [torch.from_numpy(table).reshape(-1).to(device) for table in (thresholds, pairs)]
    return flat[0], flat[1], column_bits


def _poisson_probabilities(outcomes: np.ndarray, means: np.ndarray) -> np.ndarray:
    log_factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, outcomes.max() + 1)))])
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = outcomes * np.log(means[:, None]) - means[:, None] - log_factorials[outcomes]
    logs[0] = np.where(outcomes[0] == 0, 0.0, -np.inf)
    probabilities: np.ndarray = np.exp(logs)
    probabilities /= probabilities.sum(1, keepdims=True)
    return probabilities


def _alias_method(probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return Walker's alias tables of every row: probability of keeping a column's outcome, and its alternative."""
    rows, columns = probabilities.shape
    keep, other = np.ones_like(probabilities), np.tile(np.arange(columns), (rows, 1))
    for row in range(rows):
        share = (probabilities[row] * columns).tolist()
        small = [cell for cell, value in enumerate(share) if value < 1]
        large = [cell for cell, value in enumerate(share) if value >= 1]
        while small and large:
            cell, donor = small.pop(), large[-1]
            keep[row, cell], other[row, cell] = share[cell], donor
            share[donor] -= 1 - share[cell]
            if share[donor] < 1:
                small.append(large.pop())
    return keep, other
