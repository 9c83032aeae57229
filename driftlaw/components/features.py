"""Features of any network: what its last linear layer is given."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from driftlaw.errors import UsageError
from driftlaw.execution.precision import promoted


def find_head(model: nn.Module) -> nn.Linear:
    """Return the last linear layer of a network, the one that makes logits of features."""
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not layers:
        raise UsageError("this method needs features, the input of a linear head, and this model has no linear layer")
    return layers[-1]


def logits_and_features(model: nn.Module, images: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits (n, classes) and features (n, d) of one forward pass; gradients flow through both."""
    given: list[Tensor] = []
    hook = find_head(model).register_forward_pre_hook(lambda _, arguments: given.append(arguments[0]))
    try:
        logits = model(images)
    finally:
        hook.remove()
    if len(given) != 1 or given[0].ndim != 2:
        shapes = [tuple(value.shape) for value in given]
        raise UsageError(f"the model's last linear layer was given {shapes}: expected one (n, features) a forward pass")
    return logits, promoted(given[0])


def feature_size(model: nn.Module) -> int:
    """Return the number of features of an image.

    >>> feature_size(nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 2)))
    5
    """
    return find_head(model).in_features


def head_logits(model: nn.Module, features: Tensor) -> Tensor:
    """Return the logits that the head makes of features (n, d)."""
    return torch.nn.functional.linear(features, find_head(model).weight, find_head(model).bias)
