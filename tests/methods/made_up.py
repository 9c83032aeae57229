"""Made-up images for the methods' tests."""

from __future__ import annotations

import torch


def batches(count: int) -> list[torch.Tensor]:
    """Return batches of six float64 images of noise, always the same ones."""
    generator = torch.Generator().manual_seed(5)
    return [torch.rand(6, 3, 16, 16, generator=generator, dtype=torch.float64) for _ in range(count)]
