"""Random numbers that belong to an image, not to its place in a batch: a counter-based generator."""

from __future__ import annotations

import hashlib
import math
from functools import lru_cache

import torch
from torch import Tensor

# Steele, Lea and Flood's splitmix64: the step of its counter and the two multipliers of its finaliser.
_STEP = 0x9E3779B97F4A7C15 - 2**64
_MULTIPLIERS = (0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64)
_SHIFTS = (30, 27, 31)
LEVELS = 2**16


class Draws:
    """The random numbers of the images of one batch.

    A number is a hash of (seed, corruption, severity, purpose, number of the image in its dataset, position), so an
    image gets the same ones in any batch, in any order and on any device. Draws of 16 bits go through tables that are
    made once on the CPU: no device computes a logarithm or a cosine of its own.
    """

    def __init__(self, seed: int, name: str, severity: int, indices: Tensor) -> None:
        self._stem = f"{seed}/{name}/{severity}"
        self._indices = indices

    def __len__(self) -> int:
        return len(self._indices)

    @property
    def device(self) -> torch.device:
        """The device the numbers are made on."""
        return self._indices.device

    def words(self, purpose: str, count: int) -> Tensor:
        """Return ``count`` 64-bit words an image, int64 of shape (n, count)."""
        counters = torch.arange(1, count + 1, device=self.device) * _STEP
        keys = _mixed(self._indices * _STEP + _signed_hash(f"{self._stem}/{purpose}"))
        return _mixed(keys[:, None] + counters)

    def halves(self, purpose: str, count: int) -> Tensor:
        """Return ``count`` whole numbers in [−2³¹, 2³¹) an image, int32 of shape (n, count)."""
        words = self.words(purpose, (count + 1) // 2)
        return words.view(torch.int32)[:, :count]

    def quarters(self, purpose: str, count: int) -> Tensor:
        """Return ``count`` whole numbers in [−2¹⁵, 2¹⁵) an image, int16 of shape (n, count)."""
        words = self.words(purpose, (count + 3) // 4)
        return words.view(torch.int16)[:, :count]

    def uniform(self, purpose: str, count: int) -> Tensor:
        """Return ``count`` numbers in (0, 1) an image, midpoints of 2¹⁶ equal steps, float32 of shape (n, count)."""
        return (self.quarters(purpose, count).to(torch.float32) + (LEVELS / 2 + 0.5)) / LEVELS

    def normal(self, purpose: str, count: int) -> Tensor:
        """Return ``count`` standard normal numbers an image, quantiles of 2¹⁶ equal steps, float32 (n, count)."""
        places = self.quarters(purpose, count).to(torch.int64).add_(LEVELS // 2)
        return torch.take(_normal_table(self.device), places)

    def below(self, purpose: str, limits: Tensor) -> Tensor:
        """Return a whole number in [0, limit) for every image; limits are int64 of shape (n,) or a single one."""
        return ((self.halves(purpose, 1)[:, 0].to(torch.int64) + 2**31) * limits) >> 32

    def direction(self, purpose: str, low: float, high: float) -> tuple[Tensor, Tensor]:
        """Return cosine and sine, float64 of shape (n,), of an angle in (low, high) degrees for every image."""
        places = self.quarters(purpose, 1)[:, 0].to(torch.int64) + LEVELS // 2
        table = _direction_table(low, high, self.device)
        return table[0][places], table[1][places]


def _signed_hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little", signed=True)


def _mixed(words: Tensor) -> Tensor:
    """Return splitmix64's finaliser of every word; the tensor handed in is overwritten."""
    shifted = torch.empty_like(words)
    for shift, multiplier in zip(_SHIFTS, (*_MULTIPLIERS, None), strict=True):
        torch.bitwise_right_shift(words, shift, out=shifted)
        # int64 shifts in copies of the sign; the mask makes the shift a logical one.
        words.bitwise_xor_(shifted.bitwise_and_(2 ** (64 - shift) - 1))
        if multiplier is not None:
            words.mul_(multiplier)
    return words


@lru_cache(maxsize=8)
def _normal_table(device: torch.device) -> Tensor:
    shares = (torch.arange(LEVELS, dtype=torch.float64) + 0.5) / LEVELS
    quantiles = torch.erfinv(2 * shares - 1) * math.sqrt(2)
    return (quantiles / quantiles.square().mean().sqrt()).to(torch.float32).to(device)


@lru_cache(maxsize=16)
def _direction_table(low: float, high: float, device: torch.device) -> Tensor:
    degrees = low + (high - low) * (torch.arange(LEVELS, dtype=torch.float64) + 0.5) / LEVELS
    radians = torch.deg2rad(degrees)
    return torch.stack([radians.cos(), radians.sin()]).to(device)
