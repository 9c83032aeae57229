"""The two optimizers of the field, with the numbers that every method shares."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from driftlaw.errors import UsageError


def make_optimizer(kind: str, parameters: Iterable[nn.Parameter], learning_rate: float) -> torch.optim.Optimizer:
    """Return an optimizer without weight decay.

    Args:
        kind: ``adam`` (betas 0.9 and 0.999, epsilon 1e-8) or ``sgd`` (momentum 0.9, Nesterov).
        parameters: what learns.
        learning_rate: its step size.

    >>> make_optimizer("sgd", nn.Linear(1, 1).parameters(), 0.01).defaults["nesterov"]
    True
    """
    learning = list(parameters)
    if not learning:
        raise UsageError("this model has no parameters, so there is nothing that could learn: take source")
    if kind == "adam":
        return torch.optim.Adam(learning, lr=learning_rate, betas=(0.9, 0.999), eps=1e-8)
    return torch.optim.SGD(learning, lr=learning_rate, momentum=0.9, nesterov=True)


def minimize_step(loss: Tensor, optimizer: torch.optim.Optimizer) -> None:
    """Take one step down the gradient of a loss; no gradient stays behind."""
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
