"""Diagnostics that need no labels: entropy, class shares, agreement with the source model, distance from it."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from driftlaw.dense import every_nth_pixel
from driftlaw.errors import UsageError
from driftlaw.execution.split_pass import mean_and_variance
from driftlaw.guard.monitors import mean_entropy as mean_entropy

DIAGNOSTICS = ("entropy", "predicted_classes", "class_shares", "source_agreement", "layer_distance")
"""Names of the diagnostics of every method. The last two are measured only if ``Adapter.monitor`` says so."""
MAX_CLASSES = 100  # with more classes a record would consist mainly of class shares


@dataclass(frozen=True)
class Monitor:
    """Which steps of an adapter are compared with the source model: ``adapter.monitor = Monitor(every=10)``.

    A measured step also has the diagnostics ``source_agreement``, which costs a forward pass of the source model on the
    sample, and ``layer_distance``. The first step is measured, then every ``every``-th one.

    Args:
        every: number of steps from one measured step to the next; 0: no step is measured.
        sample: number of images of a batch that are predicted by the source model, evenly spaced.
    """

    every: int = 10
    sample: int = 32

    def __post_init__(self) -> None:
        if self.every < 0 or self.sample < 1:
            raise UsageError(f"Monitor(every={self.every}, sample={self.sample}): expected every >= 0 and sample >= 1.")


def class_shares(logits: Tensor) -> Tensor:
    """Return the share of predictions of each class, a vector that sums to 1.

    >>> class_shares(torch.tensor([[3.0, 1.0, 0.0], [2.0, 0.0, 1.0]])).tolist()
    [1.0, 0.0, 0.0]
    """
    classes = torch.arange(logits.shape[1], device=logits.device)
    is_predicted = logits.argmax(dim=1).flatten()[:, None] == classes
    return is_predicted.mean(dim=0, dtype=torch.float32)  # bincount would wait for a GPU


def agreement(logits: Tensor, other: Tensor) -> Tensor:
    """Return the share of predictions that are the same in both, images or pixels."""
    logits, other = every_nth_pixel(logits), every_nth_pixel(other)
    return (logits.argmax(dim=1) == other.argmax(dim=1)).mean(dtype=torch.float32)


def relative_distances(initial: Sequence[Tensor], current: Sequence[Tensor]) -> Tensor:
    """Return ‖θ − θ₀‖ / ‖θ₀‖ of every tensor, in float64; NaN or infinite if θ₀ is zero.

    Args:
        initial: tensors θ₀ of the source model.
        current: tensors θ now, in the same order.
    """
    if not initial:
        return torch.empty(0)
    norms = [value.double().norm() for value in initial]
    distances = [(now.detach().double() - then.double()).norm() for then, now in zip(initial, current, strict=True)]
    return torch.stack(distances) / torch.stack(norms)


def six_digits(value: float) -> float | None:
    """Return a number rounded to six significant digits for a record, or None if it is not finite."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


def diagnostics_to_json(diagnostics: Mapping[str, Tensor | float]) -> dict[str, Any]:
    """Return diagnostics as a record stores them: six significant digits, None for NaN and infinity.

    >>> diagnostics_to_json({"loss": 0.123456789, "layer_weights": torch.tensor([1.0, float("nan")])})
    {'loss': 0.123457, 'layer_weights': [1.0, None]}
    """
    result: dict[str, Any] = {}
    for name, value in diagnostics.items():
        numbers = value.detach().flatten().tolist() if isinstance(value, Tensor) else [value]
        rounded = [six_digits(number) for number in numbers]
        result[name] = rounded if isinstance(value, Tensor) and value.ndim else rounded[0]
    return result


class SourceModel:
    """The model before ``configure`` and all steps, without a second copy of its parameters.

    It keeps structure, modes and buffers of the model. Its parameters are on the meta device; ``logits`` receives their
    values.

    Args:
        model: a model in eval mode, so that BatchNorm layers use their stored statistics.

    Attributes:
        is_dense: whether images have logits of several pixels; None: not known yet.
    """

    is_dense: bool | None = None

    def __init__(self, model: nn.Module) -> None:
        empty = {id(value): nn.Parameter(value.to("meta"), requires_grad=False) for value in model.parameters()}
        self.model = copy.deepcopy(model, dict(empty))

    def move(self, convert: Callable[[Tensor], Tensor]) -> None:
        """Apply the function of ``nn.Module._apply`` to the buffers."""
        for module in self.model.modules():
            for name, value in module._buffers.items():
                module._buffers[name] = None if value is None else convert(value)

    @torch.no_grad()
    def logits(self, parameters: Mapping[str, Tensor], images: Tensor, *, batch_share: float = 0.0) -> Tensor:
        """Return logits with the given parameters, by name.

        Args:
            parameters: their values, by name.
            images: the input of the model.
            batch_share: share of the batch in the statistics of BatchNorm layers, 0 (stored) to 1 (those of the batch).
        """
        layers = [layer for layer in self.model.modules() if batch_share and isinstance(layer, _BatchNorm)]
        modes = [(layer.training, layer.track_running_stats) for layer in layers]
        hooks = []
        try:
            for layer in layers:
                if batch_share < 1 and layer.running_mean is not None:
                    hooks.append(layer.register_forward_pre_hook(partial(_mix_statistics, batch_share)))
                else:
                    layer.training, layer.track_running_stats = True, False
            logits: Tensor = torch.func.functional_call(self.model, dict(parameters), (images,))
        finally:
            for hook in hooks:
                hook.remove()
            for layer, (training, tracking) in zip(layers, modes, strict=True):
                layer.training, layer.track_running_stats = training, tracking
        return logits


def _mix_statistics(share: float, layer: _BatchNorm, args: tuple[Tensor, ...]) -> Tensor:
    """Forward pre-hook of a layer in eval mode: replaces its input, so that mixed statistics normalize it.

    With the mean and variance of the batch and the stored ones, the mixture is that of two sets of values with the
    weights ``share`` and 1 − ``share``.
    """
    (values,) = args
    stored_mean, stored_variance = layer.running_mean, layer.running_var
    assert stored_mean is not None
    assert stored_variance is not None
    batch_mean, batch_variance = mean_and_variance(values.to(stored_mean.dtype))
    between = share * (1 - share) * (batch_mean - stored_mean).square()
    mean, variance = stored_mean.lerp(batch_mean, share), stored_variance.lerp(batch_variance, share) + between
    scale = ((stored_variance + layer.eps) / (variance + layer.eps)).sqrt()
    shape = [1, -1] + [1] * (values.ndim - 2)
    return ((values - mean.view(shape)) * scale.view(shape) + stored_mean.view(shape)).to(values.dtype)
