"""CUDA engine: separate weights per pass, two streams inside a captured step, one joint backward pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from driftlaw.execution.pass_weights import AutocastDtype, WeightUseTracer, autocast_dtype, weights_per_pass
from driftlaw.execution.two_pass import Augment, Loss, Network, Pass, Probe, TwoPassResult, recompute

PassKey = tuple[torch.Size, AutocastDtype]
"""What the use of weights may depend on: the shape of the images, and autocast."""


class CudaEngine:
    """Runs the two passes of a step on a GPU.

    The first batch of every shape is traced to see which weights only torch's own layers read. Later batches give each
    pass its own copies of those weights. Autograd runs every node on the CUDA stream of its forward pass, so that one
    joint backward pass over both sets of weights overlaps without further code.

    Args:
        names: names of all trainable parameters, also of those that are skipped in some steps.
        overlap: whether the second pass has a CUDA stream of its own inside a captured step.
        recompute: whether only one autograd graph is in memory at a time.
    """

    def __init__(self, names: Sequence[str], *, overlap: bool, recompute: bool) -> None:
        self.names, self.overlap, self.recompute = list(names), overlap, recompute
        self.separate_weights = True
        self.traced: dict[PassKey, dict[str, bool]] = {}

    def __call__(
        self,
        network: nn.Module,
        parameters: Sequence[Tensor],
        images: Tensor,
        augment: Augment | None,
        loss: Loss,
        probe: Probe | None,
    ) -> TwoPassResult:
        """Run an engine on the passes' own weights; see ``two_pass``."""
        first, second = self._passes(network, parameters, images)
        engine = recompute if self.recompute and augment else self._joint_backward
        result = engine(*first, images, augment, loss, probe, second)
        if isinstance(first[0], WeightUseTracer):
            self.traced[images.shape, autocast_dtype(images.device.type)] = first[0].replaceable(self.names)
        return result

    def _passes(self, network: nn.Module, parameters: Sequence[Tensor], images: Tensor) -> list[Pass]:
        """Return network and parameters of either pass."""
        if not self.separate_weights:
            return [(network, parameters)] * 2
        traced = self.traced.get((images.shape, autocast_dtype(images.device.type)))
        counted = torch._C._len_torch_dispatch_stack() > 0
        captured = images.is_cuda and torch.cuda.is_current_stream_capturing()
        if traced is None and not counted and not captured:
            return [(WeightUseTracer(network, images), parameters), (network._call_impl, parameters)]
        passes = weights_per_pass(network, self.names, traced or {}, 2)
        return [(call, [value for value in weights if value.requires_grad]) for call, weights in passes]

    def _joint_backward(
        self,
        network: Network,
        parameters: Sequence[Tensor],
        images: Tensor,
        augment: Augment | None,
        loss: Loss,
        probe: Probe | None,
        second: Pass,
    ) -> TwoPassResult:
        second_network, second_parameters = second
        pending = self._start(second_network, augment(images)) if augment else None
        logits = network(images)
        probed = probe(logits, parameters) if probe else None
        total = loss(logits, pending() if pending else None)
        pairs = list(zip(second_parameters, parameters, strict=True)) if pending else []
        separate = [value for value, other in pairs if value is not other]
        gradients = iter(torch.autograd.grad(total, [*parameters, *separate], materialize_grads=True))
        summands: list[list[Tensor | None]] = [[next(gradients) for _ in parameters]]
        if separate:
            summands.append([None if value is other else next(gradients) for value, other in pairs])
        return TwoPassResult(logits.detach(), probed, summands)

    def _start(self, network: Network, images: Tensor) -> Callable[[], Tensor]:
        """Start a pass on a second stream inside a captured step; otherwise run it when its result is needed.

        Outside of a capture the two passes would only use more memory at the same time.
        """
        if not (self.overlap and images.is_cuda and torch.cuda.is_current_stream_capturing()):
            return partial(network, images)
        main, side = torch.cuda.current_stream(), torch.cuda.Stream(images.device)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            logits = network(images)

        def wait() -> Any:
            main.wait_stream(side)
            return logits

        return wait
