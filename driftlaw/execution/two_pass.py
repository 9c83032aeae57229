"""Two forward passes of a network and the gradient of a loss over both: the interface between methods and execution.

A method says what is computed: a loss of two predictions, and a probe of the first. An engine says in which order and
where. All engines compute the same function up to rounding; ``sequential`` is the definition.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Network = Callable[[Tensor], Tensor]
Augment = Callable[[Tensor], Tensor]
Loss = Callable[[Tensor, Tensor | None], Tensor]
Probe = Callable[[Tensor, Sequence[Tensor]], Any]
GradientSummands = list[list[Tensor | None]]
Pass = tuple[Network, Sequence[Tensor]]
"""A network to call, and the tensors that take the place of its parameters in that call."""


@dataclass(frozen=True)
class Passes:
    """What an engine computes: the arguments of ``two_pass``."""

    network: Any
    parameters: Sequence[Tensor]
    images: Tensor
    augment: Augment | None
    loss: Loss
    probe: Probe | None


@dataclass(frozen=True)
class TwoPassResult:
    """Result of ``two_pass``.

    Attributes:
        logits: prediction for the batch, detached.
        probe: what the probe returned.
        summands: lists of gradients, one entry per parameter; their sum is the gradient of the loss. An entry may be
            None in all lists but the first.
    """

    logits: Tensor
    probe: Any
    summands: GradientSummands


Engine = Callable[[Passes], TwoPassResult]


def sequential(passes: Passes) -> TwoPassResult:
    """Run one pass after the other, then one backward pass through both. The definition of all engines."""
    logits = passes.network(passes.images)
    probed = passes.probe(logits, passes.parameters) if passes.probe else None
    total = passes.loss(logits, passes.network(passes.augment(passes.images)) if passes.augment else None)
    gradients = torch.autograd.grad(total, passes.parameters, materialize_grads=True)
    return TwoPassResult(logits.detach(), probed, [list(gradients)])


def recompute(passes: Passes, second: Pass | None = None) -> TwoPassResult:
    """Keep one autograd graph in memory at a time: the second forward pass runs twice, first without a graph.

    ``second`` has network and parameters of the second pass, if they are not those of the first.
    """
    if passes.augment is None:
        return sequential(passes)
    network, parameters = second or (passes.network, passes.parameters)
    logits = passes.network(passes.images)
    probed = passes.probe(logits, passes.parameters) if passes.probe else None
    augmented = passes.augment(passes.images)
    with torch.no_grad():
        augmented_logits = network(augmented)
    slopes = logit_gradients(passes.loss, logits, augmented_logits)
    first = vjp(logits, slopes, 0, passes.parameters)
    return TwoPassResult(logits.detach(), probed, [first, vjp(network(augmented), slopes, 1, parameters)])


def two_pass(
    network: nn.Module,
    parameters: Sequence[Tensor],
    images: Tensor,
    augment: Augment | None,
    loss: Loss,
    probe: Probe | None = None,
    engine: Engine = sequential,
) -> TwoPassResult:
    """Return the prediction for a batch, the result of a probe, and the gradient of a loss as summands.

    Args:
        network: maps images to logits; it is not changed.
        parameters: the gradient is taken over these; other parameters of the network get none meanwhile.
        images: the batch.
        augment: makes the second batch; the engine decides when. None: there is no second pass.
        loss: ``loss(logits, augmented_logits)``, a scalar function of its arguments alone, because engines may
            evaluate it on detached logits. The second argument is None if there is no second pass.
        probe: ``probe(logits, parameters)``, called once after the first forward pass with the tensors that take the
            place of the parameters in that pass. It may take gradients if it retains the autograd graph.
        engine: how the passes are run.
    """
    wanted = {id(value) for value in parameters}
    others = [value for value in network.parameters() if value.requires_grad and id(value) not in wanted]
    try:
        for value in others:
            value.requires_grad_(False)
        return engine(Passes(network, parameters, images, augment, loss, probe))
    finally:
        for value in others:
            value.requires_grad_(True)


def logit_gradients(loss: Loss, *logits: Tensor) -> tuple[Tensor, ...]:
    """Return the gradients of a loss with respect to logits, without going through a network."""
    leaves = [value.detach().requires_grad_() for value in logits]
    return torch.autograd.grad(loss(*leaves), leaves)


def vjp(
    logits: Tensor, slopes: Sequence[Tensor], index: int, parameters: Sequence[Tensor], retain: bool = False
) -> list[Tensor | None]:
    """Return the vector-Jacobian product of ``slopes[index]`` with the logits' Jacobian over the parameters."""
    return list(torch.autograd.grad(logits, parameters, slopes[index], retain_graph=retain, materialize_grads=True))
