"""Auto-RGN on the entropy written out by hand, a tensor at a time; nothing of driftlaw is used."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn


class ReferenceAutoRGN:
    """A network with batch statistics, of which every convolution, GroupNorm and LayerNorm tensor learns."""

    def __init__(self, model: nn.Module, *, learning_rate: float = 1e-3) -> None:
        self.model = copy.deepcopy(model).eval()
        self.learning_rate = learning_rate
        self.trainable: dict[str, nn.Parameter] = {}
        for path, module in self.model.named_modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean = module.running_var = None  # so that it always uses the batch at hand
            elif isinstance(module, nn.Conv2d | nn.GroupNorm | nn.LayerNorm):
                self.trainable |= {f"{path}.{name}": value for name, value in module.named_parameters(recurse=False)}

    def step(self, images: Tensor) -> tuple[Tensor, dict[str, float]]:
        """Answer, weigh, learn; return the answer and the weight of every tensor that learns."""
        answer = self.model(images)
        loss = torch.zeros((), dtype=images.dtype)
        for row in answer:
            probabilities = row.exp() / row.exp().sum()
            for probability in probabilities:
                loss = loss - probability * probability.log() / len(images)
        self.model.zero_grad()
        loss.backward()
        scores = {name: _length(value.grad) / _length(value) for name, value in self.trainable.items()}
        weights = {name: score / max(scores.values()) for name, score in scores.items()}
        for name, value in self.trainable.items():
            fresh = torch.optim.Adam([value], lr=self.learning_rate * weights[name], betas=(0.9, 0.999), eps=1e-8)
            fresh.step()
        return answer.detach(), weights


def _length(values: Tensor) -> float:
    return math.sqrt(math.fsum(number * number for number in values.flatten().tolist()))
