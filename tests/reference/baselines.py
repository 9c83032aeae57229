"""TENT and BN-1 with plain torch; nothing of driftlaw is used."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.reference.components import GradientHistory, entropy, make_optimizer, minimize, with_batch_statistics


def norm_logits(model: nn.Module, images: Tensor) -> Tensor:
    """Return the logits of BN-1, which normalizes with the statistics of the batch."""
    with torch.no_grad():
        return with_batch_statistics(model)(images)


class ReferenceTent:
    """TENT: entropy minimisation over scale and shift of BatchNorm layers.

    Attributes:
        gradients: the gradients of all steps.
    """

    def __init__(self, model: nn.Module, *, optimizer: str, learning_rate: float) -> None:
        self.model = with_batch_statistics(model)
        norms = [module for module in self.model.modules() if isinstance(module, nn.BatchNorm2d)]
        scale_and_shift = [value for norm in norms for value in (norm.weight, norm.bias)]
        self.optimizer = make_optimizer(optimizer, scale_and_shift, learning_rate)
        self.gradients: GradientHistory = {}

    def step(self, images: Tensor) -> Tensor:
        logits = self.model(images)
        minimize(entropy(logits), self.optimizer, self.gradients)
        return logits.detach()
