"""TENT and BN-1 written out by hand, with plain torch and no part of driftlaw."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn


def norm_logits(model: nn.Module, images: Tensor) -> Tensor:
    """BN-1: a copy of the network in which every BatchNorm uses the batch at hand."""
    own = copy.deepcopy(model).eval()
    for module in own.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean = module.running_var = None
    with torch.no_grad():
        return own(images)


class ReferenceTent:
    """TENT: one Adam or SGD over scale and shift, the entropy an image at a time."""

    def __init__(self, model: nn.Module, *, optimizer: str, learning_rate: float) -> None:
        self.model = copy.deepcopy(model).eval()
        scale_and_shift = []
        for module in self.model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean = module.running_var = None
                scale_and_shift += [module.weight, module.bias]
        if optimizer == "adam":
            self.optimizer = torch.optim.Adam(scale_and_shift, lr=learning_rate, betas=(0.9, 0.999), eps=1e-8)
        else:
            self.optimizer = torch.optim.SGD(scale_and_shift, lr=learning_rate, momentum=0.9, nesterov=True)

    def step(self, images: Tensor) -> Tensor:
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
