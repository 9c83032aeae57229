"""Surgical tuning written out by hand for a network whose parts are named: plain torch and no part of driftlaw."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn


class ReferenceSurgical:
    """Entropy minimisation over the parameters whose names begin with one of some beginnings.

    Args:
        model: the network.
        beginnings: of the names of what learns.
        norm_only: whether of these only BatchNorm's scale and shift learn.
        optimizer: ``adam`` or ``sgd``.
        learning_rate: its step size.
    """

    def __init__(
        self, model: nn.Module, beginnings: list[str], *, norm_only: bool, optimizer: str, learning_rate: float
    ) -> None:
        self.model = copy.deepcopy(model).eval()
        self.trainable: dict[str, nn.Parameter] = {}
        for path, module in self.model.named_modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean = module.running_var = None  # so that it always uses the batch at hand
            for name, value in module.named_parameters(recurse=False):
                full = f"{path}.{name}"
                inside = any(full.startswith(beginning) for beginning in beginnings)
                if inside and (isinstance(module, nn.BatchNorm2d) or not norm_only):
                    self.trainable[full] = value
        if optimizer == "adam":
            self.optimizer = torch.optim.Adam(self.trainable.values(), lr=learning_rate, betas=(0.9, 0.999), eps=1e-8)
        else:
            self.optimizer = torch.optim.SGD(self.trainable.values(), lr=learning_rate, momentum=0.9, nesterov=True)

    def step(self, images: Tensor) -> Tensor:
        """Answer, then one step down the entropy, an image at a time."""
        answer = self.model(images)
        loss = torch.zeros((), dtype=images.dtype)
        for row in answer:
            probabilities = row.exp() / row.exp().sum()
            for probability in probabilities:
                loss = loss - probability * probability.log() / len(images)
        self.model.zero_grad()
        loss.backward()
        self.optimizer.step()
        return answer.detach()
