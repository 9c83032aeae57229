"""Auto-RGN on the entropy, one tensor at a time; nothing of driftlaw is used."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from tests.reference.components import GradientHistory, entropy, with_batch_statistics


class ReferenceAutoRGN:
    """A model with batch statistics that updates every convolution, GroupNorm and LayerNorm tensor.

    Attributes:
        gradients: the gradient of the last step; Adam's moments are not kept.
        learning_rates: the learning rate of every trainable tensor in the last step.
    """

    def __init__(self, model: nn.Module, *, learning_rate: float = 1e-3) -> None:
        self.model = with_batch_statistics(model)
        self.learning_rate = learning_rate
        self.gradients: GradientHistory = {}
        self.learning_rates: dict[nn.Parameter, float] = {}
        self.trainable: dict[str, nn.Parameter] = {}
        for path, module in self.model.named_modules():
            if isinstance(module, nn.Conv2d | nn.GroupNorm | nn.LayerNorm):
                self.trainable |= {f"{path}.{name}": value for name, value in module.named_parameters(recurse=False)}

    def step(self, images: Tensor) -> tuple[Tensor, dict[str, float]]:
        """Predict and update; return the logits and the weight of every trainable tensor."""
        logits = self.model(images)
        self.model.zero_grad()
        entropy(logits).backward()
        scores = {name: _norm(value.grad) / _norm(value) for name, value in self.trainable.items()}
        weights = {name: score / max(scores.values()) for name, score in scores.items()}
        for name, value in self.trainable.items():
            self.gradients[value] = [value.grad.clone()]
            self.learning_rates[value] = self.learning_rate * weights[name]
            torch.optim.Adam([value], lr=self.learning_rates[value], betas=(0.9, 0.999), eps=1e-8).step()
        return logits.detach(), weights


def _norm(values: Tensor) -> float:
    return math.sqrt(math.fsum(number * number for number in values.flatten().tolist()))
