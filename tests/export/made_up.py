"""A small network and images for the tests of exports."""

from __future__ import annotations

import torch
from torch import nn

from driftlaw.models import build_model


def network(seed: int = 3) -> nn.Module:
    """Return a float64 network of four classes in eval mode, always the same one."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build_model("wrn_10_1", num_classes=4, normalize="half").double().eval()


def images(count: int, seed: int = 5) -> torch.Tensor:
    """Return float64 images of noise, always the same ones."""
    return torch.rand(count, 3, 16, 16, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
