"""Where norm layers take their statistics from: the source, the batch at hand, or a batch held fixed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


def batch_norm_layers(model: nn.Module) -> list[_BatchNorm]:
    """Return the layers whose answer depends on the other images of a batch."""
    return [module for module in model.modules() if isinstance(module, _BatchNorm)]


def use_batch_statistics(model: nn.Module) -> None:
    """Make every BatchNorm layer normalise with the statistics of the batch at hand and leave the stored ones alone."""
    for layer in batch_norm_layers(model):
        layer.train()
        layer.track_running_stats = False


@contextmanager
def held_statistics(model: nn.Module, images: Tensor) -> Iterator[None]:
    """Inside, BatchNorm layers normalise with the statistics of ``images`` as constants, whatever passes through.

    One forward pass measures them. Images then no longer influence each other, so per-sample gradients are right;
    through live batch statistics they would be silently wrong.
    """
    layers = batch_norm_layers(model)
    before = [(layer.training, layer.track_running_stats, layer.running_mean, layer.running_var) for layer in layers]
    measured = _measure(model, layers, images)
    for layer, (mean, variance) in zip(layers, measured, strict=True):
        layer.eval()
        layer.running_mean, layer.running_var = mean, variance
    try:
        yield
    finally:
        for layer, (training, track, mean, variance) in zip(layers, before, strict=True):
            layer.training, layer.track_running_stats = training, track
            layer.running_mean, layer.running_var = mean, variance


@torch.no_grad()
def _measure(model: nn.Module, layers: list[_BatchNorm], images: Tensor) -> list[tuple[Tensor, Tensor]]:
    found: dict[_BatchNorm, tuple[Tensor, Tensor]] = {}

    def keep(layer: _BatchNorm, arguments: tuple[Tensor, ...]) -> None:
        (values,) = arguments
        axes = [axis for axis in range(values.ndim) if axis != 1]
        variance, mean = torch.var_mean(values, dim=axes, correction=0)
        found[layer] = (mean, variance)

    hooks = [layer.register_forward_pre_hook(keep) for layer in layers]
    try:
        model(images)
    finally:
        for hook in hooks:
            hook.remove()
    return [found[layer] for layer in layers]
