"""Tensors that stand in for a network's weights during one pass, so that small work is done for all of them at once.

Two passes through the same weights have their gradients added tensor by tensor, and under autocast each pass casts
every weight at its use and every gradient on the way back: hundreds of kernels a step, each over before the next is
launched. Weights that stand there for one pass alone, cast all together, leave the adding to the step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from driftlaw.execution.precision import cast_together, promoted

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)  # whose weights and biases autocast casts
PLAIN = (*CONVOLUTIONS, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.GroupNorm, nn.LayerNorm)
FUNCTIONS = {torch.conv1d, torch.conv2d, torch.conv3d, F.batch_norm, F.group_norm, F.layer_norm}  # what those call

Autocast = torch.dtype | None
"""What autocast casts to, None where it is off."""
Pass = tuple[Callable[[Tensor], Tensor], list[Tensor]]
"""A network to call, and what its gradients are asked for, in place of its parameters."""


class Watch(TorchFunctionMode):
    """A network that sees, during a pass that is made anyway, what is done with its weights.

    Something can stand in for weights and biases of torch's own layers which the pass handed to these layers' functions
    and nothing else read, held or shares. It may be cast beforehand where a convolution used it once, under autocast,
    which would have cast it.
    """

    def __init__(self, model: nn.Module, images: Tensor) -> None:
        """Watch a network that is about to be called with these images."""
        super().__init__()
        self.model, self.device = model, images.device.type
        self.layers = {name: module for name, module in model.named_modules() if type(module) in PLAIN}
        self.calls: Counter[nn.Module] = Counter()
        self.uses: dict[int, list[tuple[Callable[..., Any], Autocast]]] = {id(own): [] for own in model.parameters()}

    def __call__(self, images: Tensor) -> Tensor:
        """Call the network, as written."""
        hooks = [layer.register_forward_pre_hook(self._count) for layer in self.layers.values()]
        try:
            with self:
                answer: Tensor = self.model._call_impl(images)
                return answer
        finally:
            for hook in hooks:
                hook.remove()

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Note which weights a function is called with."""
        for value in tree_leaves((args, kwargs)):
            if id(value) in self.uses:
                self.uses[id(value)].append((function, autocast_of(self.device)))
        return function(*args, **(kwargs or {}))

    def stand_ins(self, parameters: Sequence[str]) -> dict[str, bool]:
        """Return the parameters that something can stand in for, each with whether that may be cast beforehand."""
        owners = Counter(id(value) for _, value in self.model.named_parameters(remove_duplicate=False))
        outside = autocast_of(self.device)
        found = {}
        for name in parameters:
            path, _, kind = name.rpartition(".")
            layer, value = self.layers.get(path), self.model.get_parameter(name)
            uses = self.uses[id(value)]
            if layer is None or kind not in ("weight", "bias") or owners[id(value)] > 1 or value._backward_hooks:
                continue
            if uses and len(uses) == self.calls[layer] and all(function in FUNCTIONS for function, _ in uses):
                found[name] = type(layer) in CONVOLUTIONS and len(uses) == 1 and bool(outside) and uses[0][1] == outside
        return found

    def _count(self, layer: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        self.calls[layer] += 1


def autocast_of(device: str) -> Autocast:
    """Return the dtype that autocast casts to on a kind of device, None where it is off."""
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None


def passes_apart(model: nn.Module, parameters: Sequence[str], stand_ins: Mapping[str, bool], count: int) -> list[Pass]:
    """Return a network for each of so many passes, with weights of its own to take gradients over.

    Parameters that nothing stands in for stand in all passes themselves. Under autocast the gradients of what was cast
    have 16 bits, the digits that kernels give.

    Args:
        model: the network; it is not changed.
        parameters: names of the parameters that gradients are asked for.
        stand_ins: what a ``Watch`` saw, under the same autocast.
        count: how many passes.
    """
    own = {name: model.get_parameter(name) for name in parameters}
    short = autocast_of(next(iter(own.values())).device.type)
    values = {name: own[name].detach() for name in stand_ins}
    casts = [name for name, may in stand_ins.items() if may and short and own[name].dtype == torch.float32]
    cast = cast_together([values[name] for name in casts], [short or torch.float32] * len(casts))
    values |= dict(zip(casts, cast, strict=True))
    passes: list[Pass] = []
    for _ in range(count):
        there = {name: value.detach().requires_grad_(own[name].requires_grad) for name, value in values.items()}
        passes.append((partial(_call, model, there), [there.get(name, own[name]) for name in parameters]))
    return passes


def _call(model: nn.Module, stand_ins: Mapping[str, Tensor], images: Tensor) -> Tensor:
    if not stand_ins:
        return model(images)
    dtype = next(model.parameters()).dtype
    answer = functional_call(model, dict(stand_ins), (images,), tie_weights=False)
    # A float32 network answers in float32, though the weights that it is asked with may be short ones.
    return promoted(answer) if dtype == torch.float32 and answer.dtype == torch.bfloat16 else answer
