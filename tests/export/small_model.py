"""A small model and images for the tests of exports."""

from __future__ import annotations

import torch
from torch import nn

from driftlaw.models import build_model


def small_model(seed: int = 3) -> nn.Module:
    """Return a float64 model with four classes in eval mode, the same every time."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build_model("wrn_10_1", num_classes=4, normalize="half").double().eval()


def images(count: int, seed: int = 5) -> torch.Tensor:
    """Return float64 noise images, the same every time."""
    return torch.rand(count, 3, 16, 16, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
