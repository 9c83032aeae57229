"""CUDA engine: separate weights per pass, two streams inside a captured step, one joint backward pass."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from driftlaw.execution.pass_weights import AutocastDtype, WeightUseTracer, autocast_dtype, weights_per_pass
from driftlaw.execution.two_pass import GradientSummands, Network, Pass, Passes, TwoPassResult, recompute

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

    def __call__(self, passes: Passes) -> TwoPassResult:
        """Run the passes on weights of their own."""
        images = passes.images
        (network, parameters), second = self._networks(passes)
        passes = replace(passes, network=network, parameters=parameters)
        result = (recompute if self.recompute else self._joint_backward)(passes, second)
        if isinstance(network, WeightUseTracer):
            self.traced[images.shape, autocast_dtype(images.device.type)] = network.replaceable(self.names)
        return result

    def _networks(self, passes: Passes) -> list[Pass]:
        """Return network and parameters of either pass."""
        network, images = passes.network, passes.images
        if not self.separate_weights:
            return [(network, passes.parameters)] * 2
        traced = self.traced.get((images.shape, autocast_dtype(images.device.type)))
        counted = torch._C._len_torch_dispatch_stack() > 0
        captured = images.is_cuda and torch.cuda.is_current_stream_capturing()
        if traced is None and not counted and not captured:
            return [(WeightUseTracer(network, images), passes.parameters), (network._call_impl, passes.parameters)]
        copies = weights_per_pass(network, self.names, traced or {}, 2)
        return [(call, [value for value in weights if value.requires_grad]) for call, weights in copies]

    def _joint_backward(self, passes: Passes, second: Pass) -> TwoPassResult:
        parameters, (network, second_parameters) = passes.parameters, second
        pending = self._start(network, passes.augment(passes.images)) if passes.augment else None
        logits = passes.network(passes.images)
        probed = passes.probe(logits, parameters) if passes.probe else None
        total = passes.loss(logits, pending() if pending else None)
        pairs = list(zip(second_parameters, parameters, strict=True)) if pending else []
        separate = [value for value, other in pairs if value is not other]
        gradients = iter(torch.autograd.grad(total, [*parameters, *separate], materialize_grads=True))
        summands: GradientSummands = [[next(gradients) for _ in parameters]]
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
