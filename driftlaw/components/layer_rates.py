"""How fast each group of parameters learns, and steps that take a rate a tensor without rebuilding an optimizer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from driftlaw.components.parameters import block_name, module_name
from driftlaw.execution.compile import fusable
from driftlaw.execution.precision import at_least_float32, foreach_cast

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8  # Adam's own defaults, the paper's Section 4.1
GROUP_OF = {"tensor": str, "module": module_name, "block": block_name}


class ParameterGroups(nn.Module):
    """Which tensors share a rate.

    Attributes:
        names: a name a group, in the order of the network.
        group_index: (tensors,), the group of every tensor.
        sizes: (tensors,), the number of entries of every tensor.
    """

    group_index: Tensor
    sizes: Tensor

    def __init__(self, parameters: Sequence[str], sizes: Tensor, grouping: str) -> None:
        """Group parameter names by ``tensor``, ``module`` or ``block``."""
        super().__init__()
        group_names = [GROUP_OF[grouping](name) for name in parameters]
        self.names = list(dict.fromkeys(group_names))
        group_index = torch.tensor([self.names.index(name) for name in group_names], device=sizes.device)
        self.register_buffer("group_index", group_index, persistent=False)
        self.register_buffer("sizes", sizes, persistent=False)

    def importance(self, fisher: Tensor, reduction: str) -> Tensor:
        """Return w = √mean or √trace of the Fisher information, a number a group (Eq. 5).

        Args:
            fisher: (tensors,), the mean of every tensor's diagonal.
            reduction: ``mean`` or ``trace``.
        """
        empty = fisher.new_zeros(len(self.names))
        trace = empty.index_add(0, self.group_index, fisher * self.sizes)
        if reduction == "trace":
            return trace.sqrt()
        return (trace / empty.index_add(0, self.group_index, self.sizes)).sqrt()


def exponential_min_max(weights: Tensor, tau: float) -> Tensor:
    """Return ((w − min)/(max − min + 1e-8))^τ: the flattest group stands still, the sharpest learns in full (Eq. 7)."""
    low, high = torch.aminmax(weights)
    return ((weights - low) / (high - low + 1e-8)).pow(tau)


@torch.no_grad()
def sum_gradients(parameters: Sequence[Tensor], parts: Sequence[Sequence[Tensor | None]]) -> list[Tensor]:
    """Return the sums of gradients that came in parts, in the dtypes of what they are the gradients of.

    Args:
        parameters: what moves.
        parts: a gradient of every parameter in the first; in others None where there is nothing to add.
    """
    totals = list(parameters)
    for number, part in enumerate(parts):
        places = [place for place, value in enumerate(part) if value is not None]
        found = foreach_cast([part[place] for place in places], [parameters[place].dtype for place in places])
        if number and places:
            found = torch._foreach_add([totals[place] for place in places], found)
        for place, value in zip(places, found, strict=True):
            totals[place] = value
    return totals


@fusable
@torch.no_grad()
def first_adam_step_of_summands(
    parameters: Sequence[Tensor], parts: Sequence[Sequence[Tensor | None]], rates: Tensor
) -> None:
    """Add gradients up, as ``sum_gradients`` does, and take the fresh step with them: one function, to be fused."""
    first_adam_step(parameters, sum_gradients(parameters, parts), rates)


@torch.no_grad()
def first_adam_step(parameters: Sequence[Tensor], gradients: Sequence[Tensor], rates: Tensor) -> None:
    """Take the first step of a new Adam, which is g/(|g| + ε) times the rate: no moment ever lives (Eq. 10)."""
    if any(value.dtype == torch.float16 for value in gradients):  # which has no ε
        gradients = [at_least_float32(value) for value in gradients]
    scale = torch._foreach_abs(list(gradients))
    torch._foreach_add_(scale, EPSILON)
    _descend(parameters, torch._foreach_div(list(gradients), scale), rates)


@torch.no_grad()
def adam_step(
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    rates: Tensor,
    *,
    first: Sequence[Tensor],
    second: Sequence[Tensor],
    step: int,
) -> None:
    """Take step number ``step`` (from 1) of an Adam whose moments ``first`` and ``second`` live on; updates them."""
    first, second, gradients = list(first), list(second), list(gradients)
    torch._foreach_lerp_(first, gradients, 1 - BETA_1)
    torch._foreach_mul_(second, BETA_2)
    torch._foreach_addcmul_(second, gradients, gradients, value=1 - BETA_2)
    scale = torch._foreach_sqrt(second)
    torch._foreach_div_(scale, (1 - BETA_2**step) ** 0.5)
    torch._foreach_add_(scale, EPSILON)
    _descend(parameters, torch._foreach_div(torch._foreach_div(first, 1 - BETA_1**step), scale), rates)


def adam_update(
    parameters: Sequence[Tensor],
    summands: Sequence[Sequence[Tensor | None]],
    rates: Tensor,
    first: Sequence[Tensor] = (),
    second: Sequence[Tensor] = (),
    step: int | None = None,
) -> None:
    """Take one step of Adam with one rate per tensor, in place (Eq. 10).

    Args:
        parameters: the tensors to update.
        summands: lists of gradients whose sum is the gradient.
        rates: (tensors,).
        first: first moments, updated in place. Empty: this is the first step of a new Adam.
        second: second moments, likewise.
        step: with moments, the number of this step, from 1.
    """
    if step is None:
        first_adam_step_of_summands(parameters, summands, rates)
    else:
        gradients = sum_gradients(parameters, summands)
        adam_step(parameters, gradients, rates, first=first, second=second, step=step)


def _descend(parameters: Sequence[Tensor], directions: list[Tensor], rates: Tensor) -> None:
    torch._foreach_mul_(directions, list(rates.unbind()))
    torch._foreach_sub_(list(parameters), directions)
