"""BatchNorm layers that normalize with a mixture of the statistics of the batch and the stored ones."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from driftlaw.execution.split_pass import mean_and_variance

StoredWeight = float | Literal["adaptive"]
"""Weight of the stored statistics in a mixture, 0 to 1, or chosen for every layer and batch."""
SHIFT = 0.1  # divergence at which both have the weight 1/2; chosen on CamVid with the held-out corruptions


def batch_norm_layers(model: nn.Module) -> list[_BatchNorm]:
    """Return all BatchNorm layers of a model, of any dimension."""
    return [module for module in model.modules() if isinstance(module, _BatchNorm)]


def mix_batch_stats(network: nn.Module, weight: StoredWeight) -> None:
    """Make BatchNorm layers that use batch statistics alone mix them with their stored ones, if they have any."""
    for layer in batch_norm_layers(network):
        if layer.training and layer.running_mean is not None:
            layer.eval()
            layer.register_forward_pre_hook(MixedBatchStats(weight))


class MixedBatchStats:
    """Forward pre-hook that makes a BatchNorm layer in eval mode mix batch and stored statistics (alpha-BN).

    With weight s, mean μ_b and variance v_b of the batch, and stored μ_s and v_s (You et al., 2021):

        μ = (1 − s)·μ_b + s·μ_s,        v = (1 − s)·v_b + s·v_s.

    With ``"adaptive"``, s = 1/(1 + (D/0.1)²) for every layer and batch, where D is the divergence
    KL(N(μ_b, v_b) ‖ N(μ_s, v_s)), averaged over channels. A layer whose input has not changed keeps its stored
    statistics, and one whose input has changed much uses those of the batch. AR-TTA (Sójka et al., 2023) chooses the
    weight from a divergence, too. No gradient flows through s.

    The layer is not changed. The hook replaces its input x by (x − μ)·√((v_s + ε)/(v + ε)) + μ_s, which the stored
    statistics normalize to (x − μ)/√(v + ε). Gradients flow through the batch statistics.
    """

    def __init__(self, stored_stats_weight: StoredWeight) -> None:
        self.stored_stats_weight = stored_stats_weight

    def mix(self, layer: _BatchNorm, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance of a batch, mixed with the stored ones."""
        stored_mean, stored_variance = _stored_stats(layer)
        weight: Tensor | float
        if self.stored_stats_weight == "adaptive":
            weight = 1 / (1 + (divergence(layer, mean.detach(), variance.detach()) / SHIFT) ** 2)
        else:
            weight = self.stored_stats_weight
        return torch.lerp(mean, stored_mean, weight), torch.lerp(variance, stored_variance, weight)

    def __call__(self, layer: _BatchNorm, args: tuple[Tensor, ...]) -> Tensor:
        """Return the replacement of the layer's input."""
        (values,) = args
        stored_mean, stored_variance = _stored_stats(layer)
        mean, variance = self.mix(layer, *mean_and_variance(values.to(stored_mean.dtype)))
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
