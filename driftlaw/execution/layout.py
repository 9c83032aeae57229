"""Memory format: channels-last where it is faster, contiguous where a network needs it."""

from typing import Any

import torch
from torch import nn


def use_channels_last(mode: str, model: nn.Module) -> bool:
    """Return True if a network should use channels-last: if ``mode`` is ``on``, or ``auto`` and it is faster.

    float64 networks keep their format, because it changes the last digits. So do networks with GroupNorm, which need
    contiguous inputs on a CPU.
    """
    if mode == "auto" and any(isinstance(layer, nn.GroupNorm) for layer in model.modules()):
        return False
    weights = [layer.weight for layer in model.modules() if isinstance(layer, nn.Conv2d)]
    faster = mode == "auto" and any(weight.dtype != torch.float64 for weight in weights)
    return bool(weights) and (mode == "on" or faster)


def keep_group_norm_contiguous(model: nn.Module) -> None:
    """Give the GroupNorm layers of a model contiguous inputs on a CPU, whatever the format of model and images.

    torch 2.13 crashes in the backward pass of a channels-last GroupNorm whose input needs no gradient.
    """
    for layer in model.modules():
        if isinstance(layer, nn.GroupNorm):
            layer.register_forward_pre_hook(_make_contiguous)


def _make_contiguous(layer: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value.contiguous() if value.device.type == "cpu" else value for value in inputs)
