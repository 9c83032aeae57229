"""Counter-based random numbers that depend on the image, not on its position in a batch."""

import hashlib
import math
from functools import lru_cache

import torch
from torch import Tensor

# splitmix64 (Steele, Lea and Flood, 2014): increment of the counter, and multipliers and shifts of the finaliser.
_INCREMENT = 0x9E3779B97F4A7C15 - 2**64
_MULTIPLIERS = (0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64)
_SHIFTS = (30, 27, 31)
LEVELS = 2**16


class CounterRNG:
    """Random numbers for the images of one batch, from a counter-based generator.

    A number is a hash of (seed, corruption, severity, purpose, index of the image in its dataset, position). An image
    therefore gets the same numbers in any batch, in any order and on any device. 16-bit numbers are mapped through
    tables that are computed once on the CPU, so that logarithms and cosines do not depend on the device.

    Args:
        seed: seed of the corruption.
        name: name of the corruption.
        severity: 1 to 5.
        indices: int64 (n,), index of each image in its dataset, on the device the numbers are computed on.

    >>> batch, alone = CounterRNG(0, "fog", 3, torch.arange(5)), CounterRNG(0, "fog", 3, torch.tensor([4]))
    >>> torch.equal(batch.normal("noise", 10)[4:], alone.normal("noise", 10))
    True
    """

    def __init__(self, seed: int, name: str, severity: int, indices: Tensor) -> None:
        self._prefix = f"{seed}/{name}/{severity}"
        self._indices = indices

    def __len__(self) -> int:
        return len(self._indices)

    @property
    def device(self) -> torch.device:
        """Device the numbers are computed on."""
        return self._indices.device

    def words(self, purpose: str, count: int, dtype: torch.dtype = torch.int64) -> Tensor:
        """Return ``count`` integers per image, uniform over all values of a signed integer type, (n, count)."""
        per_word = 8 // dtype.itemsize
        counters = torch.arange(1, -(-count // per_word) + 1, device=self.device) * _INCREMENT
        digest = hashlib.sha256(f"{self._prefix}/{purpose}".encode()).digest()
        keys = _splitmix64(self._indices * _INCREMENT + int.from_bytes(digest[:8], "little", signed=True))
        return _splitmix64(keys[:, None] + counters).view(dtype)[:, :count]

    def uniform(self, purpose: str, count: int) -> Tensor:
        """Return ``count`` numbers in (0, 1) per image, midpoints of 2¹⁶ equal intervals, float32 (n, count)."""
        return (self.words(purpose, count, torch.int16).to(torch.float32) + (LEVELS / 2 + 0.5)) / LEVELS

    def normal(self, purpose: str, count: int) -> Tensor:
        """Return ``count`` standard normal numbers per image, quantiles of 2¹⁶ equal steps, float32 (n, count)."""
        entries = self.words(purpose, count, torch.int16).to(torch.int64).add_(LEVELS // 2)
        return torch.take(_normal_table(self.device), entries)

    def randint(self, purpose: str, high: Tensor) -> Tensor:
        """Return one integer in [0, high) per image, int64 (n,); ``high`` is int64 of shape (n,) or ()."""
        return ((self.words(purpose, 1, torch.int32)[:, 0].to(torch.int64) + 2**31) * high) >> 32

    def direction(self, purpose: str, low: float, high: float) -> tuple[Tensor, Tensor]:
        """Return cosine and sine of one angle in (low, high) degrees per image, float64 (n,) each."""
        entries = self.words(purpose, 1, torch.int16)[:, 0].to(torch.int64) + LEVELS // 2
        table = _direction_table(low, high, self.device)
        return table[0][entries], table[1][entries]


def _splitmix64(words: Tensor) -> Tensor:
    """Apply splitmix64's finaliser to every word in place."""
    shifted = torch.empty_like(words)
    for shift, multiplier in zip(_SHIFTS, (*_MULTIPLIERS, None), strict=True):
        torch.bitwise_right_shift(words, shift, out=shifted)
        # int64 shifts in copies of the sign bit; the mask makes this a logical shift.
        words.bitwise_xor_(shifted.bitwise_and_(2 ** (64 - shift) - 1))
        if multiplier is not None:
            words.mul_(multiplier)
    return words


@lru_cache(maxsize=8)
def _normal_table(device: torch.device) -> Tensor:
    probabilities = (torch.arange(LEVELS, dtype=torch.float64) + 0.5) / LEVELS
    quantiles = torch.erfinv(2 * probabilities - 1) * math.sqrt(2)
    return (quantiles / quantiles.square().mean().sqrt()).to(torch.float32).to(device)


@lru_cache(maxsize=16)
def _direction_table(low: float, high: float, device: torch.device) -> Tensor:
    degrees = low + (high - low) * (torch.arange(LEVELS, dtype=torch.float64) + 0.5) / LEVELS
    radians = torch.deg2rad(degrees)
    return torch.stack([radians.cos(), radians.sin()]).to(device)
