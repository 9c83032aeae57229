"""Naive LAW: a straightforward implementation that driftlaw's LAW is timed against and must agree with.

It follows the description of the first public release, which is slow in these ways:

- float32 and contiguous (NCHW) memory; no autocast, no CUDA graphs, no compilation;
- a second, deep copy of the model, whose parameters hold the accumulated Fisher information at full size;
- a forward pass of x with a backward pass for the Fisher information, then a second forward pass of x and one of the
  augmented x for the loss, with both graphs in memory at the same time;
- a Python loop over tensors with three host-device synchronisations each: two comparisons for the running minimum and
  maximum, one number for the learning rate;
- a new ``torch.optim.Adam`` for every batch, with one parameter group per tensor.

Nothing is slower than that description makes it. Of driftlaw only the augmentation is used, so that both
implementations see the same images.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from driftlaw.components.augment import AugmentParams, augment

ADAPTED_LAYERS = (nn.Conv2d, _BatchNorm, nn.LayerNorm, nn.GroupNorm)


class NaiveLaw:
    """LAW on a model; ``step(images)`` predicts a batch and updates the model.

    Args:
        model: the model; it is changed in place.
        learning_rate: η.
        tau: τ, the exponent of the min-max scaler.
        consistency_weight: λ, the weight of the consistency loss.
        seed: seed of the augmentation; driftlaw's LAW draws the same augmentations from the same seed.
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
        self.model = use_batch_statistics(model)
        self.parameters = adapted_parameters(self.model)
        self.fisher_model = copy.deepcopy(self.model)
        self.fisher = adapted_parameters(self.fisher_model)
        for total in self.fisher:
            total.data.zero_()

    def step(self, images: Tensor) -> Tensor:
        """Return logits (n, classes), or (n, classes, h, w), from before the update, then take one step."""
        self.add_to_fisher(images)
        optimizer = self.make_optimizer()
        optimizer.zero_grad()
        logits = self.model(images)
        params = AugmentParams.from_generator(self.generator)
        if logits.ndim == 4:  # predictions are compared pixel by pixel, so that no pixel may move
            params = replace(params, degrees=0.0, shift=(0.0, 0.0), scale=1.0, flip=False)
        augmented = self.model(augment(images, params))
        probabilities = logits.softmax(dim=1)
        entropy = -(probabilities * logits.log_softmax(dim=1)).sum(dim=1).mean()
        consistency = -(probabilities * augmented.log_softmax(dim=1)).sum(dim=1).mean()  # Eq. 8
        loss = entropy + self.consistency_weight * consistency  # Eq. 9
        loss.backward()
        optimizer.step()  # Eq. 10
        return logits.detach()

    def add_to_fisher(self, images: Tensor) -> None:
        """Add the squared gradient of the log-likelihood of the model's own predictions, tensor by tensor."""
        self.model.zero_grad()
        logits = self.model(images)
        F.nll_loss(logits.log_softmax(dim=1), logits.argmax(dim=1)).backward()  # Eq. 2
        for value, total in zip(self.parameters, self.fisher, strict=True):
            total.data += value.grad.data**2  # Eq. 3 and 4

    def make_optimizer(self) -> torch.optim.Adam:
        """Return a new Adam with the learning rate η·w̄ for each tensor."""
        low = high = None
        importance = []
        for total in self.fisher:
            value = total.data.mean().sqrt()  # Eq. 5
            if low is None or value < low:
                low = value
            if high is None or value > high:
                high = value
            importance.append(value)
        groups = []
        for parameter, value in zip(self.parameters, importance, strict=True):
            weight = (((value - low) / (high - low + 1e-8)) ** self.tau).item()  # Eq. 7
            groups.append({"params": [parameter], "lr": self.learning_rate * weight})
        return torch.optim.Adam(groups, lr=self.learning_rate, betas=(0.9, 0.999), eps=1e-8)


def use_batch_statistics(model: nn.Module) -> nn.Module:
    """Put a model in training mode, with BatchNorm layers that use only the statistics of the current batch."""
    model.train()
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.track_running_stats = False
            module.running_mean = None
            module.running_var = None
    return model


def adapted_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Return weights and biases of convolutions and normalisation layers, and freeze all other parameters."""
    model.requires_grad_(False)
    parameters = [
        value
        for module in model.modules()
        if isinstance(module, ADAPTED_LAYERS)
        for value in module.parameters(recurse=False)
    ]
    for value in parameters:
        value.requires_grad_(True)
    return parameters
