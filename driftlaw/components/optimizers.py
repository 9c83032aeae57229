"""Optimizers with the settings that the papers share."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from driftlaw.errors import UsageError


def make_optimizer(
    kind: str, parameters: Iterable[nn.Parameter], learning_rate: float, *, nesterov: bool = True
) -> torch.optim.Optimizer:
    """Return an optimizer without weight decay.

    Args:
        kind: ``adam`` (betas 0.9 and 0.999, epsilon 1e-8) or ``sgd`` (momentum 0.9).
        parameters: parameters to update.
        learning_rate: step size.
        nesterov: whether the momentum of SGD is Nesterov's.

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
    return torch.optim.SGD(trainable, lr=learning_rate, momentum=0.9, nesterov=nesterov)


def minimize_step(loss: Tensor, optimizer: torch.optim.Optimizer) -> None:
    """Backpropagate a loss, take one optimizer step, and clear the gradients."""
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


@torch.no_grad()
def step_if(condition: Tensor, optimizer: torch.optim.Optimizer) -> None:
    """Take one optimizer step and clear the gradients, but change nothing if the condition is False.

    Moments are not changed either. No value is read back to the host.

    Args:
        condition: bool scalar on the device of the parameters.
        optimizer: its parameters have gradients.
    """
    taken = condition.float()
    before = _parameters_and_moments(optimizer)
    kept = torch._foreach_mul(list(before.values()), 1 - taken)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    after = _parameters_and_moments(optimizer)
    torch._foreach_mul_(list(after.values()), taken)  # moments that the step created are 0 if it is not taken
    torch._foreach_add_([after[key] for key in before], kept)


def _parameters_and_moments(optimizer: torch.optim.Optimizer) -> dict[tuple[int, str], Tensor]:
    parameters = [value for group in optimizer.param_groups for value in group["params"]]
    tensors = {(index, ""): value for index, value in enumerate(parameters)}
    for index, value in enumerate(parameters):
        moments = optimizer.state.get(value, {}).items()
        tensors |= {(index, name): moment for name, moment in moments if isinstance(moment, Tensor)}
    return tensors
