"""LAW written plainly, the way its first release is described: what our LAW is timed against, and must agree with.

What is slow about it is slow on purpose, and is no more than the description of the released implementation names (the
issue «Speed» and the table of partings between paper and code that our LAW's settings repeat):

- float32 and contiguous (NCHW) memory, no autocast, no capture, no compilation;
- a second, deep copy of the network, whose parameters hold the Fisher sums at full size;
- a forward pass of x for the score with a backward pass of its own, then a second forward pass of x and one of the
  augmented x for the loss, the graphs of both alive at the same time;
- a Python loop over tensors with three round trips between host and device each: two comparisons for the running
  smallest and largest weight, one number for the rate;
- a new ``torch.optim.Adam`` every batch, with a parameter group a tensor, so that no moment outlives a batch.

Nothing else is done that costs time, and nothing of ours is used but the augmentation, so that both see the same one.
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from driftlaw.components.augment import AugmentParams, augment

LEARNING_LAYERS = (nn.Conv2d, _BatchNorm, nn.LayerNorm, nn.GroupNorm)


class PlainLaw:
    """LAW around a network that it takes for itself; ``step(images)`` answers a batch and learns from it.

    Args:
        model: the network; it is changed in place.
        learning_rate: η.
        tau: τ, the exponent of the min-max scaler.
        consistency_weight: λ, the weight of the consistency loss.
        seed: drives the augmentation; the same seed draws what our LAW draws.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        learning_rate: float = 1e-3,
        tau: float = 1.0,
        consistency_weight: float = 0.1,
        seed: int = 0,
    ) -> None:
        self.learning_rate, self.tau, self.consistency_weight = learning_rate, tau, consistency_weight
        self.generator = torch.Generator().manual_seed(seed)
        self.model = use_batch_stats(model)
        self.parameters = choose_parameters(self.model)
        self.fisher_model = copy.deepcopy(self.model)
        self.fisher = choose_parameters(self.fisher_model)
        for total in self.fisher:
            total.data.zero_()

    def step(self, images: Tensor) -> Tensor:
        """Return logits (n, classes) from before the update, then take one step."""
        self.add_to_fisher(images)
        optimizer = self.make_optimizer()
        optimizer.zero_grad()
        logits = self.model(images)
        augmented = self.model(augment(images, AugmentParams.from_generator(self.generator)))
        probabilities = logits.softmax(dim=1)
        entropy = -(probabilities * logits.log_softmax(dim=1)).sum(dim=1).mean()
        consistency = -(probabilities * augmented.log_softmax(dim=1)).sum(dim=1).mean()  # Eq. 8
        loss = entropy + self.consistency_weight * consistency  # Eq. 9
        loss.backward()
        optimizer.step()  # Eq. 10
        return logits.detach()

    def add_to_fisher(self, images: Tensor) -> None:
        """Add the squared gradient of the batch's likelihood at its own arg-max labels, tensor by tensor."""
        self.model.zero_grad()
        logits = self.model(images)
        F.nll_loss(logits.log_softmax(dim=1), logits.argmax(dim=1)).backward()  # Eq. 2
        for value, total in zip(self.parameters, self.fisher, strict=True):
            total.data += value.grad.data**2  # Eq. 3 and 4

    def make_optimizer(self) -> torch.optim.Adam:
        """Return a new Adam in which every tensor has a rate of its own, η·w̄."""
        low = high = None
        sharpness = []
        for total in self.fisher:
            value = total.data.mean().sqrt()  # Eq. 5
            if low is None or value < low:
                low = value
            if high is None or value > high:
                high = value
            sharpness.append(value)
        groups = []
        for parameter, value in zip(self.parameters, sharpness, strict=True):
            weight = (((value - low) / (high - low + 1e-8)) ** self.tau).item()  # Eq. 7
            groups.append({"params": [parameter], "lr": self.learning_rate * weight})
        return torch.optim.Adam(groups, lr=self.learning_rate, betas=(0.9, 0.999), eps=1e-8)


def use_batch_stats(model: nn.Module) -> nn.Module:
    """Put a network in train mode with BatchNorm layers that store no statistics and know only the batch at hand."""
    model.train()
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.track_running_stats = False
            module.running_mean = None
            module.running_var = None
    return model


def choose_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Freeze a network but for the weights and biases of its convolutions and norm layers, and return those."""
    model.requires_grad_(False)
    chosen = [
        value
        for module in model.modules()
        if isinstance(module, LEARNING_LAYERS)
        for value in module.parameters(recurse=False)
    ]
    for value in chosen:
        value.requires_grad_(True)
    return chosen
