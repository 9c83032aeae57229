"""Robust BatchNorm (RoTTA): statistics that move slowly from those of training to those of the target images."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from driftlaw.execution.batch_statistics import MixedBatchStats, batch_norm_layers


class _RecordedStats(MixedBatchStats):
    """Mixes the statistics of the batch with the stored ones, and keeps the result for each layer."""

    def __init__(self, rate: float) -> None:
        super().__init__(1 - rate)
        self.recorded: dict[_BatchNorm, tuple[Tensor, Tensor]] = {}

    def mix(self, layer: _BatchNorm, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        mean, variance = super().mix(layer, mean, variance)
        self.recorded[layer] = mean.detach(), variance.detach()
        return mean, variance


@contextmanager
def robust_batch_stats(model: nn.Module, rate: float) -> Iterator[None]:
    """Context manager in which BatchNorm layers in eval mode update their stored statistics and normalize with them.

    With stored mean μ and variance v, and those of the batch (biased), a forward pass uses

        μ ← (1 − rate)·μ + rate·μ_batch,        v ← (1 − rate)·v + rate·v_batch,

    and gradients flow through the batch's part. The new values are stored when the context ends, so that a backward
    pass belongs inside. Layers without stored statistics use those of the batch.

    Args:
        model: the model, in eval mode. One forward pass is made inside the context.
        rate: share of the batch.
    """
    mixed = _RecordedStats(rate)
    layers = [layer for layer in batch_norm_layers(model) if layer.running_mean is not None]
    hooks = [layer.register_forward_pre_hook(mixed) for layer in layers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
    with torch.no_grad():
        for layer, (mean, variance) in mixed.recorded.items():
            assert layer.running_mean is not None
            assert layer.running_var is not None
            layer.running_mean.copy_(mean)
            layer.running_var.copy_(variance)
