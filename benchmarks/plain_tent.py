"""TENT written plainly, the field's habit: what a step of ours is timed against, and must agree with.

float32 and contiguous (NCHW) memory; the norm layers' scale and shift under ``torch.optim.Adam``; forward, backward,
step, ``zero_grad``. Norm layers know only the batch at hand; nothing is reset. Nothing of ours is used.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

NORM_LAYERS = (_BatchNorm, nn.LayerNorm, nn.GroupNorm)


class PlainTent:
    """TENT around a network that it takes for itself; ``step(images)`` answers a batch and learns from it.

    Args:
        model: the network; it is changed in place.
        learning_rate: of Adam.
    """

    def __init__(self, model: nn.Module, *, learning_rate: float = 1e-3) -> None:
        self.model = model.train().requires_grad_(False)
        chosen = []
        for module in model.modules():
            if isinstance(module, _BatchNorm):
                module.track_running_stats = False
                module.running_mean = None
                module.running_var = None
            if isinstance(module, NORM_LAYERS):
                module.requires_grad_(True)
                chosen += list(module.parameters(recurse=False))
        self.optimizer = torch.optim.Adam(chosen, lr=learning_rate, betas=(0.9, 0.999), eps=1e-8)

    def step(self, images: Tensor) -> Tensor:
        """Return logits (n, classes) from before the update, then take one step down their mean entropy."""
        logits = self.model(images)
        loss = -(logits.softmax(dim=1) * logits.log_softmax(dim=1)).sum(dim=1).mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return logits.detach()
