"""The small network on which methods are compared with their reference implementations."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from driftlaw.models import build_model


@pytest.fixture
def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return build_model("wrn_10_1", num_classes=4).double().eval()


@pytest.fixture
def confident_network(network) -> nn.Module:
    """The test network with larger logits: the entropies of the test images are from 0.3 to 1.0 nats."""
    with torch.no_grad():
        network.head.weight.mul_(10)
    return network
