"""Tensors that stand in for a network's weights during one pass, so that small work is done for all of them at once.

Two passes through the same weights have their gradients added tensor by tensor, and under autocast each pass casts
every weight at its use and every gradient on the way back: hundreds of kernels a step, each over before the next is
launched. Weights that stand there for one pass alone, cast all together, leave the adding to the step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call

from driftlaw.ingredients.precision import cast_together, promoted

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)  # whose weights and biases autocast casts
PLAIN = (*CONVOLUTIONS, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.GroupNorm, nn.LayerNorm)

Pass = tuple[Callable[[Tensor], Tensor], list[Tensor]]
"""A network to call once, and what its gradients are asked for, in place of its parameters."""


def passes_apart(model: nn.Module, parameters: Sequence[str], count: int) -> list[Pass]:
    """Return a network for each of so many passes, with weights of its own to take gradients over.

    Only weights of torch's own layers, which nothing else shares, are replaced: what another layer does with a weight
    before it uses it is not known. All others stand in all passes themselves. Under autocast convolutions get theirs
    cast, and so have gradients in 16 bits, the digits that their kernels give.

    Args:
        model: the network; it is not changed.
        parameters: names of the parameters that gradients are asked for.
        count: how many passes.
    """
    own = {name: model.get_parameter(name) for name in parameters}
    kinds = _replaceable(model, parameters)
    device = next(iter(own.values())).device.type
    casts = [name for name, kind in kinds.items() if kind in CONVOLUTIONS] if torch.is_autocast_enabled(device) else []
    cast = cast_together([own[name].detach() for name in casts], [torch.get_autocast_dtype(device)] * len(casts))
    values = {name: own[name].detach() for name in kinds} | dict(zip(casts, cast, strict=True))
    passes: list[Pass] = []
    for _ in range(count):
        there = {name: value.detach().requires_grad_(own[name].requires_grad) for name, value in values.items()}
        passes.append((partial(_call, model, there), [there.get(name, own[name]) for name in parameters]))
    return passes


def _replaceable(model: nn.Module, parameters: Sequence[str]) -> dict[str, type[nn.Module]]:
    """Return the parameters that something can stand in for, each with the class of its layer."""
    layers = {name: type(module) for name, module in model.named_modules() if type(module) in PLAIN}
    uses = Counter(id(value) for _, value in model.named_parameters(remove_duplicate=False))
    owners = {name: layers.get(name.rpartition(".")[0]) for name in parameters}
    return {name: owner for name, owner in owners.items() if owner and uses[id(model.get_parameter(name))] == 1}


def _call(model: nn.Module, stand_ins: Mapping[str, Tensor], images: Tensor) -> Tensor:
    if not stand_ins:
        return model(images)
    dtypes = {value.dtype for value in model.parameters()}
    answer = functional_call(model, dict(stand_ins), (images,), tie_weights=False)
    # The digits of a float32 network's answer, though the weights that it was asked with may all have been short ones.
    return promoted(answer) if dtypes == {torch.float32} and answer.dtype == torch.bfloat16 else answer
