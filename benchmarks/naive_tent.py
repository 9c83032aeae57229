"""Naive TENT: a straightforward implementation that driftlaw's TENT is timed against and must agree with.

float32, contiguous (NCHW) memory, and ``torch.optim.Adam`` on scale and shift of the normalisation layers. Each step is
forward, backward, optimizer step, ``zero_grad``. BatchNorm uses the statistics of the current batch. It uses no code of
driftlaw.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

NORM_LAYERS = (_BatchNorm, nn.LayerNorm, nn.GroupNorm)


class NaiveTent:
    """TENT on a model; ``step(images)`` predicts a batch and updates the model.

    Args:
        model: the model; it is changed in place.
        learning_rate: learning rate of Adam.
    """

    def __init__(self, model: nn.Module, *, learning_rate: float = 1e-3) -> None:
        self.model = model.train().requires_grad_(False)
        parameters = []
        for module in model.modules():
            if isinstance(module, _BatchNorm):
                module.track_running_stats = False
                module.running_mean = None
                module.running_var = None
            if isinstance(module, NORM_LAYERS):
                module.requires_grad_(True)
                parameters += list(module.parameters(recurse=False))
        self.optimizer = torch.optim.Adam(parameters, lr=learning_rate, betas=(0.9, 0.999), eps=1e-8)

    def step(self, images: Tensor) -> Tensor:
        """Return logits (n, classes), or (n, classes, h, w), from before the update, then minimise their entropy."""
        logits = self.model(images)
        loss = -(logits.softmax(dim=1) * logits.log_softmax(dim=1)).sum(dim=1).mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return logits.detach()
