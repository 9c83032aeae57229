"""BatchNorm statistics: of the stored source data, of the current batch, a mixture of both, or fixed to one batch."""

import copy
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from driftlaw.errors import UsageError
from driftlaw.execution.batch_statistics import (
    MixedBatchStats,
    StoredWeight,
    batch_norm_layers,
    mix_batch_stats,
    mixing_hook,
)
from driftlaw.execution.split_pass import mean_and_variance

Stats = dict[_BatchNorm, tuple[Tensor | None, Tensor | None]]  # mean and variance by layer


def use_batch_stats(model: nn.Module, stored_stats_weight: StoredWeight = 0.0) -> None:
    """Make every BatchNorm layer normalize with the statistics of the current batch; stored ones are not updated.

    Args:
        model: the model, changed in place.
        stored_stats_weight: weight of the stored statistics in a mixture of both, or ``"adaptive"``; see
            `MixedBatchStats`. Layers without stored statistics use those of the batch alone.
    """
    for layer in batch_norm_layers(model):
        layer.train()
        layer.track_running_stats = False
    if stored_stats_weight:
        mix_batch_stats(model, stored_stats_weight)


@contextmanager
def fixed_batch_stats(model: nn.Module, images: Tensor) -> Iterator[None]:
    """Context manager in which BatchNorm layers normalize with the statistics of ``images`` as constants.

    One forward pass measures them. Inside, images do not influence each other, so per-sample gradients are correct.
    With batch statistics that depend on the input they would be wrong without an error.
    """
    layers = batch_norm_layers(model)
    before = [dict(vars(layer)) for layer in layers]
    _store_stats(_measure(model, layers, images))
    try:
        yield
    finally:
        for layer, attributes in zip(layers, before, strict=True):
            vars(layer).update(attributes)


def _store_stats(stats: Stats) -> None:
    """Make layers normalize with the given statistics; attributes are replaced and not changed in place."""
    for layer, (mean, variance) in stats.items():
        layer.eval()
        layer._buffers = {**layer._buffers, "running_mean": mean, "running_var": variance}
        hooks = layer._forward_pre_hooks.items()
        layer._forward_pre_hooks = OrderedDict(item for item in hooks if not isinstance(item[1], MixedBatchStats))


@torch.no_grad()
def _measure(model: nn.Module, layers: list[_BatchNorm], images: Tensor) -> Stats:
    """Return the statistics that each layer normalizes ``images`` with; layers that are not called keep theirs."""
    stats: Stats = {layer: (layer.running_mean, layer.running_var) for layer in layers}

    def measure(layer: _BatchNorm, args: tuple[Tensor, ...]) -> None:
        mixing = mixing_hook(layer)
        measured = mean_and_variance(args[0])
        stats[layer] = measured if mixing is None else mixing.mix(layer, *measured)

    # Prepended, because the mixing hook changes the input.
    hooks = [layer.register_forward_pre_hook(measure, prepend=True) for layer in layers]
    try:
        model(images)
    finally:
        for hook in hooks:
            hook.remove()
    return stats


def uses_batch_stats(layer: _BatchNorm) -> bool:
    """Return True if a layer in its current mode normalizes with batch statistics, alone or mixed."""
    return layer.training or layer.running_mean is None or mixing_hook(layer) is not None


def freeze_batch_stats(model: nn.Module, images: Tensor | None) -> nn.Module:
    """Return a copy in eval mode that predicts for a single image what ``model`` predicts for it among ``images``.

    Layers that use batch statistics store those of ``images``, mixed with the source statistics if ``model`` mixes
    them. Layers that use stored statistics keep them.

    Args:
        model: the model of an adapter, or any model after `use_batch_stats`.
        images: (n, c, h, w) in [0, 1], from the target distribution, at least about one hundred. If None, every layer
            returns to its stored statistics.

    Raises:
        UsageError: ``images`` is None and a layer has no stored statistics.
    """
    frozen = copy.deepcopy(model)
    layers = [layer for layer in batch_norm_layers(frozen) if uses_batch_stats(layer)]
    stored: Stats = {layer: (layer.running_mean, layer.running_var) for layer in layers}
    _store_stats(stored if images is None else _measure(frozen, layers, images))
    for layer in layers:
        layer.track_running_stats = True
    missing = sum(layer.running_mean is None for layer in layers)
    if missing:
        raise UsageError(
            f"{missing} BatchNorm layers have no stored statistics, so they cannot be frozen. Pass images to measure "
            "statistics on."
        )
    return frozen.eval()
