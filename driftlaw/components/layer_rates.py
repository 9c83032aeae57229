"""Layer-wise learning rates, and Adam steps that take one learning rate per tensor."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from driftlaw.components.parameters import block_name, module_name
from driftlaw.execution.compile import fusable
from driftlaw.execution.precision import foreach_cast

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8  # the defaults of Adam, Section 4.1 of the paper
GROUP_NAME: dict[str, Callable[[str], str]] = {"tensor": str, "module": module_name, "block": block_name}


class ParameterGroups(nn.Module):
    """Groups of parameter tensors that share a learning rate.

    Attributes:
        names: name of every group, in the order of the model.
        group_index: (tensors,), index of the group of every tensor.
        sizes: (tensors,), number of entries of every tensor.
    """

    group_index: Tensor
    sizes: Tensor

    def __init__(self, parameters: Sequence[str], sizes: Tensor, grouping: str) -> None:
        """Group parameter names by ``tensor``, ``module`` or ``block``."""
        super().__init__()
        group_names = [GROUP_NAME[grouping](name) for name in parameters]
        self.names = list(dict.fromkeys(group_names))
        group_index = torch.tensor([self.names.index(name) for name in group_names], device=sizes.device)
        self.register_buffer("group_index", group_index, persistent=False)
        self.register_buffer("sizes", sizes, persistent=False)

    def importance(self, fisher: Tensor, reduction: str) -> Tensor:
        """Return the layer importance w = √mean or √trace of the Fisher diagonal, one number per group (Eq. 5).

        Args:
            fisher: (tensors,), the mean of the Fisher diagonal of every tensor.
            reduction: ``mean`` or ``trace``.
        """
        zeros = fisher.new_zeros(len(self.names))
        trace = zeros.index_add(0, self.group_index, fisher * self.sizes)
        if reduction == "trace":
            return trace.sqrt()
        return (trace / zeros.index_add(0, self.group_index, self.sizes)).sqrt()


def exponential_min_max(weights: Tensor, tau: float) -> Tensor:
    """Return w̄ = ((w − min w)/(max w − min w + 1e-8))^τ, in [0, 1] (Eq. 7).

    >>> exponential_min_max(torch.tensor([1.0, 2.0, 3.0]), tau=2.0)
    tensor([0.0000, 0.2500, 1.0000])
    """
    low, high = torch.aminmax(weights)
    return ((weights - low) / (high - low + 1e-8)).pow(tau)


@torch.no_grad()
def sum_gradients(parameters: Sequence[Tensor], summands: Sequence[Sequence[Tensor | None]]) -> list[Tensor]:
    """Return the sums of gradient summands, in the dtypes of the parameters.

    Args:
        parameters: the updated tensors.
        summands: lists of gradients, one per parameter. All are tensors in the first list; in the others, None means
            that there is nothing to add.
    """
    totals = list(parameters)
    for number, summand in enumerate(summands):
        present = [(index, value) for index, value in enumerate(summand) if value is not None]
        indices = [index for index, _ in present]
        values = foreach_cast([value for _, value in present], [parameters[index].dtype for index in indices])
        if number and indices:
            values = list(torch._foreach_add([totals[index] for index in indices], values))
        for index, value in zip(indices, values, strict=True):
            totals[index] = value
    return totals


@fusable
@torch.no_grad()
def first_adam_step_of_summands(
    parameters: Sequence[Tensor], summands: Sequence[Sequence[Tensor | None]], rates: Tensor
) -> None:
    """Apply `sum_gradients` and `first_adam_step` as one function, so that both can be fused."""
    first_adam_step(parameters, sum_gradients(parameters, summands), rates)


@torch.no_grad()
def first_adam_step(parameters: Sequence[Tensor], gradients: Sequence[Tensor], rates: Tensor) -> None:
    """Subtract rate·g/(|g| + ε) from every parameter: the first step of a new Adam, without moments (Eq. 10).

    Args:
        parameters: tensors to update in place.
        gradients: one per parameter.
        rates: (parameters,), the learning rate of every tensor.
    """
    scale = torch._foreach_abs(list(gradients))
    torch._foreach_add_(scale, EPSILON)
    _subtract(parameters, torch._foreach_div(list(gradients), scale), rates)


@torch.no_grad()
def adam_update(
    parameters: Sequence[Tensor],
    summands: Sequence[Sequence[Tensor | None]],
    rates: Tensor,
    first: Sequence[Tensor] = (),
    second: Sequence[Tensor] = (),
    step: int | None = None,
) -> None:
    """Take one step of Adam with one learning rate per tensor, in place (Eq. 10).

    Args:
        parameters: tensors to update.
        summands: lists of gradients whose sum is the gradient, see `sum_gradients`.
        rates: (parameters,), the learning rate of every tensor.
        first: first moments, updated in place.
        second: second moments, updated in place.
        step: number of this step, from 1. If None, this is the first step of a new Adam without moments.
    """
    if step is None:
        first_adam_step_of_summands(parameters, summands, rates)
        return
    first, second, gradients = list(first), list(second), sum_gradients(parameters, summands)
    torch._foreach_lerp_(first, gradients, 1 - BETA_1)
    torch._foreach_mul_(second, BETA_2)
    torch._foreach_addcmul_(second, gradients, gradients, value=1 - BETA_2)
    scale = torch._foreach_sqrt(second)
    torch._foreach_div_(scale, (1 - BETA_2**step) ** 0.5)
    torch._foreach_add_(scale, EPSILON)
    _subtract(parameters, torch._foreach_div(torch._foreach_div(first, 1 - BETA_1**step), scale), rates)


def _subtract(parameters: Sequence[Tensor], directions: Sequence[Tensor], rates: Tensor) -> None:
    torch._foreach_mul_(list(directions), list(rates.unbind()))
    torch._foreach_sub_(list(parameters), list(directions))
