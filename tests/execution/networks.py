"""Networks and images for the tests of execution."""

from __future__ import annotations

import os

import pytest
import torch
from torch import nn

from driftlaw.execution.compile import has_cpp_compiler

CPU = torch.device("cpu")
needs_compiler = pytest.mark.skipif(
    not has_cpp_compiler() or os.environ.get("ATEN_CPU_CAPABILITY") == "default",
    reason="needs a C++ compiler and vector instructions (inductor fails with ATEN_CPU_CAPABILITY=default)",
)
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


class ViewsFeatures(nn.Module):
    """Flattens its feature maps with ``view``, which fails for the channels-last memory format."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4 * 36, 5)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.norm(self.conv(images))
        return self.head(features.view(len(images), -1))


def views_features() -> nn.Module:
    torch.manual_seed(0)
    return ViewsFeatures()


def network(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)).to(dtype)


def batches(count: int, size: int = 6, device: torch.device = CPU, dtype: torch.dtype = torch.float32) -> list:
    generator = torch.Generator().manual_seed(1)
    return [torch.rand(size, 3, 8, 8, generator=generator).to(device, dtype) for _ in range(count)]
