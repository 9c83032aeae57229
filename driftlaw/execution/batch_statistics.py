"""BatchNorm layers that normalize with a mixture of the statistics of the batch and the stored ones."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from driftlaw.execution.split_pass import mean_and_variance

StoredWeight = float | Literal["adaptive"]
"""Weight of the stored statistics in a mixture, 0 to 1, or chosen for every batch."""
SHIFT = 0.2  # divergence at which both have the weight 1/2; chosen on CamVid with the held-out corruptions

_weight: ContextVar[Tensor | float] = ContextVar("_weight", default=1.0)  # of stored statistics in this pass
_divergences: ContextVar[list[Tensor] | None] = ContextVar("_divergences", default=None)  # in a pass that measures them


def batch_norm_layers(model: nn.Module) -> list[_BatchNorm]:
    """Return all BatchNorm layers of a model, of any dimension."""
    return [module for module in model.modules() if isinstance(module, _BatchNorm)]


def mix_batch_stats(network: nn.Module, weight: StoredWeight) -> None:
    """Make BatchNorm layers that use batch statistics alone mix them with their stored ones, if they have any."""
    layers = [layer for layer in batch_norm_layers(network) if layer.training and layer.running_mean is not None]
    for layer in layers:
        layer.eval()
        layer.register_forward_pre_hook(MixedBatchStats(weight))
    if layers and weight == "adaptive":
        network.register_forward_pre_hook(_choose_weight, with_kwargs=True)


def mixing_hook(layer: _BatchNorm) -> MixedBatchStats | None:
    """Return the hook of a layer that mixes statistics, if it has one."""
    return next((hook for hook in layer._forward_pre_hooks.values() if isinstance(hook, MixedBatchStats)), None)


@torch.no_grad()
def _choose_weight(network: nn.Module, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    """Forward pre-hook of a network: measure divergences in a pass with stored statistics, and set the weight."""
    if not any(map(mixing_hook, batch_norm_layers(network))):
        return  # statistics are fixed
    measured: list[Tensor] = []
    token = _divergences.set(measured)
    try:
        network.forward(*args, **keywords)
    finally:
        _divergences.reset(token)
    if measured:
        _weight.set(1 / (1 + (torch.stack(measured).mean() / SHIFT) ** 2))


class MixedBatchStats:
    """Forward pre-hook that makes a BatchNorm layer in eval mode mix batch and stored statistics (alpha-BN).

    With weight s, mean μ_b and variance v_b of the batch, and stored μ_s and v_s (You et al., 2021):

        μ = (1 − s)·μ_b + s·μ_s,        v = (1 − s)·v_b + s·v_s.

    With ``"adaptive"``, s = 1/(1 + (D/0.2)²) in all layers. D says how much the batch differs from the training data:
    it is the divergence KL(N(μ_b, v_b) ‖ N(μ_s, v_s)) in a pass with stored statistics, averaged over the channels of a
    layer, then over layers. This pass comes before every other one, without gradients. AR-TTA (Sójka et al., 2023)
    chooses a weight for each layer from a divergence.

    The layer is not changed. The hook replaces its input x by (x − μ)·√((v_s + ε)/(v + ε)) + μ_s, which the stored
    statistics normalize to (x − μ)/√(v + ε). Gradients flow through the batch statistics.
    """

    def __init__(self, stored_stats_weight: StoredWeight) -> None:
        self.stored_stats_weight = stored_stats_weight

    def mix(self, layer: _BatchNorm, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance of a batch, mixed with the stored ones."""
        stored_mean, stored_variance = _stored_stats(layer)
        weight = _weight.get() if self.stored_stats_weight == "adaptive" else self.stored_stats_weight
        return torch.lerp(mean, stored_mean, weight), torch.lerp(variance, stored_variance, weight)

    def __call__(self, layer: _BatchNorm, args: tuple[Tensor, ...]) -> Tensor | None:
        """Return the replacement of the layer's input; None, after its divergence was measured."""
        (values,) = args
        stored_mean, stored_variance = _stored_stats(layer)
        mean, variance = mean_and_variance(values.to(stored_mean.dtype))
        if (measured := _divergences.get()) is not None:
            measured.append(divergence(layer, mean, variance))
            return None
        mean, variance = self.mix(layer, mean, variance)
        scale = ((stored_variance + layer.eps) / (variance + layer.eps)).sqrt()
        shape = [1, -1] + [1] * (values.ndim - 2)
        offset = stored_mean - mean * scale
        return torch.addcmul(offset.view(shape), values.to(scale.dtype), scale.view(shape)).to(values.dtype)


def divergence(layer: _BatchNorm, mean: Tensor, variance: Tensor) -> Tensor:
    """Return KL(N(mean, variance + ε) ‖ N(stored mean, stored variance + ε)), averaged over channels."""
    stored_mean, stored_variance = _stored_stats(layer)
    ratio = (variance + layer.eps) / (stored_variance + layer.eps)
    distance = (mean - stored_mean).square() / (stored_variance + layer.eps)
    return (ratio + distance - 1 - ratio.log()).mean() / 2


def _stored_stats(layer: _BatchNorm) -> tuple[Tensor, Tensor]:
    assert layer.running_mean is not None
    assert layer.running_var is not None
    return layer.running_mean, layer.running_var
