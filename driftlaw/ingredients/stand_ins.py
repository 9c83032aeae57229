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


def find_stand_ins(model: nn.Module, parameters: Sequence[str], images: Tensor) -> dict[str, bool]:
    """Return the parameters that something can stand in for, each with whether that may be cast beforehand.

    Weights and biases of torch's own layers, which a pass goes through and nothing else shares: what other layers do
    with theirs is not known. Cast may be those of a convolution that a pass goes through once, under autocast: it would
    cast them itself. One pass finds out, and leaves no trace.

    Args:
        model: the network, as it learns.
        parameters: names of the parameters that gradients are asked for.
        images: what the pass is made with.
    """
    layers = {name: module for name, module in model.named_modules() if type(module) in PLAIN}
    passed, under_autocast = _watch(model, list(layers.values()), images)
    owners = Counter(id(value) for _, value in model.named_parameters(remove_duplicate=False))
    found = {}
    for name in parameters:
        path, _, kind = name.rpartition(".")
        layer = layers.get(path)
        if layer is None or kind not in ("weight", "bias") or not passed[layer]:
            continue
        if owners[id(model.get_parameter(name))] == 1:
            once = passed[layer] == under_autocast[layer] == 1
            found[name] = once and type(layer) in CONVOLUTIONS and not layer._forward_pre_hooks
    return found


def passes_apart(model: nn.Module, parameters: Sequence[str], stand_ins: Mapping[str, bool], count: int) -> list[Pass]:
    """Return a network for each of so many passes, with weights of its own to take gradients over.

    Parameters that nothing stands in for stand in all passes themselves. Under autocast the gradients of what was cast
    have 16 bits, the digits that kernels give.

    Args:
        model: the network; it is not changed.
        parameters: names of the parameters that gradients are asked for.
        stand_ins: what ``find_stand_ins`` found.
        count: how many passes.
    """
    own = {name: model.get_parameter(name) for name in parameters}
    device = next(iter(own.values())).device.type
    short = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    values = {name: own[name].detach() for name in stand_ins}
    casts = [name for name, may in stand_ins.items() if may and short and own[name].dtype == torch.float32]
    cast = cast_together([values[name] for name in casts], [short or torch.float32] * len(casts))
    values |= dict(zip(casts, cast, strict=True))
    passes: list[Pass] = []
    for _ in range(count):
        there = {name: value.detach().requires_grad_(own[name].requires_grad) for name, value in values.items()}
        passes.append((partial(_call, model, there), [there.get(name, own[name]) for name in parameters]))
    return passes


def _watch(
    model: nn.Module, layers: Sequence[nn.Module], images: Tensor
) -> tuple[Counter[nn.Module], Counter[nn.Module]]:
    """Return how often a pass goes through layers, and how often under the autocast that stands around it."""
    passed: Counter[nn.Module] = Counter()
    under_autocast: Counter[nn.Module] = Counter()
    kind = images.device.type
    outside = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)

    def count(layer: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        passed[layer] += 1
        under_autocast[layer] += outside[0] and outside == (
            torch.is_autocast_enabled(kind),
            torch.get_autocast_dtype(kind),
        )

    hooks = [layer.register_forward_pre_hook(count) for layer in layers]
    devices = [images.device] if images.is_cuda else []
    try:
        with torch.no_grad(), torch.random.fork_rng(devices):
            model._call_impl(images)  # not the compiled network, which has other hooks
    finally:
        for hook in hooks:
            hook.remove()
    return passed, under_autocast


def _call(model: nn.Module, stand_ins: Mapping[str, Tensor], images: Tensor) -> Tensor:
    if not stand_ins:
        return model(images)
    dtype = next(model.parameters()).dtype
    answer = functional_call(model, dict(stand_ins), (images,), tie_weights=False)
    # A float32 network answers in float32, though the weights that it is asked with may be short ones.
    return promoted(answer) if dtype == torch.float32 and answer.dtype == torch.bfloat16 else answer
