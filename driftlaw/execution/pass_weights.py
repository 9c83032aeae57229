"""Separate copies of the weights for each forward pass of a step (used on GPUs).

When two passes share their weights, autograd accumulates gradients tensor by tensor, and autocast casts each weight at
every use: hundreds of tiny kernels per step, dominated by launch overhead. Giving each pass its own detached weights,
cast with one ``foreach`` call, lets the step add all gradients with one ``foreach`` call.
"""

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

from driftlaw.execution.precision import foreach_cast
from driftlaw.execution.two_pass import Pass

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)  # autocast casts their weights and biases
SUPPORTED_LAYERS = (*CONVOLUTIONS, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.GroupNorm, nn.LayerNorm)
SUPPORTED_OPS = {torch.conv1d, torch.conv2d, torch.conv3d, F.batch_norm, F.group_norm, F.layer_norm}

AutocastDtype = torch.dtype | None
"""The dtype that autocast casts to; None if it is off."""


class WeightUseTracer(TorchFunctionMode):
    """Runs a network once and records which operations read its weights.

    A weight or bias can be replaced by a copy if it belongs to one of torch's own layers and only the operation of that
    layer reads it. The copy may be cast beforehand if a convolution uses it once, under autocast.
    """

    def __init__(self, model: nn.Module, images: Tensor) -> None:
        super().__init__()
        self.model, self.device = model, images.device.type
        self.layers = {name: module for name, module in model.named_modules() if type(module) in SUPPORTED_LAYERS}
        self.calls: Counter[nn.Module] = Counter()
        self.uses: dict[int, list[tuple[Callable[..., Any], AutocastDtype]]] = {
            id(value): [] for value in model.parameters()
        }

    def __call__(self, images: Tensor) -> Tensor:
        """Call the network, not compiled."""
        hooks = [layer.register_forward_pre_hook(self._count) for layer in self.layers.values()]
        try:
            with self:
                logits: Tensor = self.model._call_impl(images)
                return logits
        finally:
            for hook in hooks:
                hook.remove()

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Record which weights a function is called with."""
        for value in tree_leaves((args, kwargs)):
            if id(value) in self.uses:
                self.uses[id(value)].append((function, autocast_dtype(self.device)))
        return function(*args, **(kwargs or {}))

    def replaceable(self, parameters: Sequence[str]) -> dict[str, bool]:
        """Return the names of the parameters that a copy can replace, each with whether the copy may be cast."""
        owners = Counter(id(value) for _, value in self.model.named_parameters(remove_duplicate=False))
        outside = autocast_dtype(self.device)
        result = {}
        for name in parameters:
            path, _, kind = name.rpartition(".")
            layer, value = self.layers.get(path), self.model.get_parameter(name)
            uses = self.uses[id(value)]
            if layer is None or kind not in ("weight", "bias") or owners[id(value)] > 1 or value._backward_hooks:
                continue
            if uses and len(uses) == self.calls[layer] and all(function in SUPPORTED_OPS for function, _ in uses):
                cast = type(layer) in CONVOLUTIONS and len(uses) == 1 and bool(outside) and uses[0][1] == outside
                result[name] = cast
        return result

    def _count(self, layer: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        self.calls[layer] += 1


def autocast_dtype(device: str) -> AutocastDtype:
    """Return the dtype that autocast casts to on a device type; None if it is off."""
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None


def weights_per_pass(
    model: nn.Module, parameters: Sequence[str], replaceable: Mapping[str, bool], count: int
) -> list[Pass]:
    """Return a network and its parameters for each of ``count`` passes.

    Parameters that cannot be replaced are shared by all passes. Under autocast, gradients of cast copies have 16 bits.

    Args:
        model: the network; it is not changed.
        parameters: names of the parameters that gradients are taken over.
        replaceable: what ``WeightUseTracer.replaceable`` returned under the same autocast.
        count: number of passes.
    """
    originals = {name: model.get_parameter(name) for name in parameters}
    dtype = autocast_dtype(next(iter(originals.values())).device.type)
    values = {name: originals[name].detach() for name in replaceable}
    names = [name for name, cast in replaceable.items() if cast and dtype and values[name].dtype == torch.float32]
    casts = foreach_cast([values[name] for name in names], [dtype or torch.float32] * len(names))
    values |= dict(zip(names, casts, strict=True))
    passes: list[Pass] = []
    for _ in range(count):
        copies = {name: value.detach().requires_grad_(originals[name].requires_grad) for name, value in values.items()}
        passes.append((partial(_call, model, copies), [copies.get(name, originals[name]) for name in parameters]))
    return passes


def _call(model: nn.Module, weights: Mapping[str, Tensor], images: Tensor) -> Tensor:
    if not weights:
        return model(images)  # type: ignore[no-any-return]
    return functional_call(model, dict(weights), (images,), tie_weights=False)  # type: ignore[no-any-return]
