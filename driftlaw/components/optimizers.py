"""Optimizers with the settings that the papers share."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from driftlaw.errors import UsageError


def make_optimizer(kind: str, parameters: Iterable[nn.Parameter], learning_rate: float) -> torch.optim.Optimizer:
    """Return an optimizer without weight decay.

    Args:
        kind: ``adam`` (betas 0.9 and 0.999, epsilon 1e-8) or ``sgd`` (Nesterov momentum 0.9).
        parameters: parameters to update.
        learning_rate: step size.

    Raises:
        UsageError: there are no parameters.

    >>> make_optimizer("sgd", nn.Linear(1, 1).parameters(), 0.01).defaults["nesterov"]
    True
    """
    trainable = list(parameters)
    if not trainable:
        raise UsageError("The model has no parameters to adapt. Use method 'source' to run it without adaptation.")
    if kind == "adam":
        return torch.optim.Adam(trainable, lr=learning_rate, betas=(0.9, 0.999), eps=1e-8)
    return torch.optim.SGD(trainable, lr=learning_rate, momentum=0.9, nesterov=True)


def minimize_step(loss: Tensor, optimizer: torch.optim.Optimizer) -> None:
    """Backpropagate a loss, take one optimizer step, and clear the gradients."""
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
