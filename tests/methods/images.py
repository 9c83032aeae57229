"""Images for the tests of methods."""

from __future__ import annotations

import torch

TERMS = 6 * 16 * 16
"""Number of terms that are summed in one gradient entry: images times pixels of the largest feature map."""


def batches(count: int) -> list[torch.Tensor]:
    """Return batches of six random float64 images, always the same ones."""
    generator = torch.Generator().manual_seed(5)
    return [torch.rand(6, 3, 16, 16, generator=generator, dtype=torch.float64) for _ in range(count)]
