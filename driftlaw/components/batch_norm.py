"""Where norm layers take their statistics from: the source, the batch at hand, both, or a batch held fixed."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from driftlaw.errors import UsageError


def batch_norm_layers(model: nn.Module) -> list[_BatchNorm]:
    """Return the layers whose answer depends on the other images of a batch."""
    return [module for module in model.modules() if isinstance(module, _BatchNorm)]


def use_batch_stats(model: nn.Module, source_share: float = 0.0) -> None:
    """Make every BatchNorm layer normalize with the statistics of the batch at hand and leave the stored ones alone.

    Args:
        model: the network.
        source_share: how much of the stored statistics is mixed in; layers that store none go without.
    """
    for layer in batch_norm_layers(model):
        if source_share and layer.running_mean is not None:
            layer.eval()
            layer.register_forward_pre_hook(MixedBatchStats(source_share))
        else:
            layer.train()
            layer.track_running_stats = False


class MixedBatchStats:
    """Makes a BatchNorm layer in eval mode normalize with statistics mixed of the batch's and its stored ones.

    m = (1 − s)·batch mean + s·stored mean, and v likewise (alpha-BN, You et al., 2021). The layer itself is left as it
    is, whatever it does beside normalising: its input x becomes (x − m)·√((stored v + ε)/(v + ε)) + stored m, of which
    the stored statistics make (x − m)/√(v + ε). Gradients flow through the batch's part.
    """

    def __init__(self, share: float) -> None:
        self.share = share
        self.held = False

    def mix(self, layer: _BatchNorm, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance of a batch mixed with the stored ones."""
        return torch.lerp(mean, layer.running_mean, self.share), torch.lerp(variance, layer.running_var, self.share)

    def __call__(self, layer: _BatchNorm, arguments: tuple[Tensor, ...]) -> Tensor | None:
        """Return the input that the layer makes the answer of, before the layer is called."""
        if self.held:
            return None
        (values,) = arguments
        mean, variance = self.mix(layer, *_mean_and_variance(values.to(layer.running_mean.dtype)))
        scale = ((layer.running_var + layer.eps) / (variance + layer.eps)).sqrt()
        shape = [1, -1] + [1] * (values.ndim - 2)
        moved = (values - mean.view(shape)) * scale.view(shape) + layer.running_mean.view(shape)
        return moved.to(values.dtype)


def _share_of(layer: _BatchNorm) -> MixedBatchStats | None:
    return next((hook for hook in layer._forward_pre_hooks.values() if isinstance(hook, MixedBatchStats)), None)


def _mean_and_variance(values: Tensor) -> tuple[Tensor, Tensor]:
    axes = [axis for axis in range(values.ndim) if axis != 1]
    # A CPU's sums over channels-last maps lose three digits more than those over contiguous ones.
    variance, mean = torch.var_mean(values.contiguous(), dim=axes, correction=0)
    return mean, variance


@contextmanager
def fixed_batch_stats(model: nn.Module, images: Tensor) -> Iterator[None]:
    """Inside, BatchNorm layers normalize with the statistics of ``images`` as constants, whatever passes through.

    One forward pass measures them. Images then no longer influence each other, so per-sample gradients are right;
    through live batch statistics they would be silently wrong.
    """
    layers = batch_norm_layers(model)
    before = [(layer.training, layer.track_running_stats, layer.running_mean, layer.running_var) for layer in layers]
    measured = _measure(model, layers, images)
    for layer, (mean, variance) in zip(layers, measured, strict=True):
        layer.eval()
        layer.running_mean, layer.running_var = mean, variance
        _hold(layer, True)
    try:
        yield
    finally:
        for layer, (training, track, mean, variance) in zip(layers, before, strict=True):
            layer.training, layer.track_running_stats = training, track
            layer.running_mean, layer.running_var = mean, variance
            _hold(layer, False)


def _hold(layer: _BatchNorm, held: bool) -> None:
    share = _share_of(layer)
    if share is not None:
        share.held = held


@torch.no_grad()
def _measure(model: nn.Module, layers: list[_BatchNorm], images: Tensor) -> list[tuple[Tensor, Tensor]]:
    found: dict[_BatchNorm, tuple[Tensor, Tensor]] = {}

    def keep(layer: _BatchNorm, arguments: tuple[Tensor, ...]) -> None:
        (values,) = arguments
        share = _share_of(layer)
        measured = _mean_and_variance(values)
        found[layer] = measured if share is None else share.mix(layer, *measured)

    hooks = [layer.register_forward_pre_hook(keep, prepend=True) for layer in layers]  # before anything is mixed in
    try:
        model(images)
    finally:
        for hook in hooks:
            hook.remove()
    # A layer that answers nothing, such as one of an auxiliary head, keeps what it has.
    return [found.get(layer, (layer.running_mean, layer.running_var)) for layer in layers]


def uses_batch_stats(layer: _BatchNorm) -> bool:
    """Tell whether a layer, as it stands, normalises with the batch at hand, wholly or in part."""
    return layer.training or layer.running_mean is None or _share_of(layer) is not None


def freeze_batch_stats(model: nn.Module, images: Tensor | None) -> nn.Module:
    """Return a copy in eval mode that answers an image alone as ``model`` answers it among ``images``.

    Layers that normalize with the batch at hand store the statistics of ``images``, mixed with the source's where they
    mix; layers that normalize with stored statistics keep those.

    Args:
        model: a network as an adapter holds it; any other after ``use_batch_stats``.
        images: (n, c, h, w) in [0, 1], as the network is to meet them; a hundred or more make good statistics. None:
            every layer goes back to what it stores.
    """
    own = copy.deepcopy(model)
    live = [layer for layer in batch_norm_layers(own) if uses_batch_stats(layer)]
    if images is not None:
        for layer, (mean, variance) in zip(live, _measure(own, live, images), strict=True):
            layer.running_mean, layer.running_var = mean, variance
    for layer in live:
        layer.track_running_stats = True
        for key in [key for key, hook in layer._forward_pre_hooks.items() if isinstance(hook, MixedBatchStats)]:
            del layer._forward_pre_hooks[key]
    unfixed = sum(layer.running_mean is None for layer in live)
    if unfixed:
        raise UsageError(f"{unfixed} BatchNorm layers store no statistics: give images to take them from")
    return own.eval()
