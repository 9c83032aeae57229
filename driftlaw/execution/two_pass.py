"""Two forward passes of a network and the gradient of a loss over both: the interface between methods and execution.

A method says what is computed: a loss of two predictions, and a probe of the first. An engine says in which order and
where. All engines compute the same function up to rounding; ``sequential`` is the definition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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


Engine = Callable[[Any, Sequence[Tensor], Tensor, Augment | None, Loss, Probe | None], TwoPassResult]


def sequential(
    network: Network,
    parameters: Sequence[Tensor],
    images: Tensor,
    augment: Augment | None,
    loss: Loss,
    probe: Probe | None,
) -> TwoPassResult:
    """Run one pass after the other, then one backward pass through both. The definition of all engines."""
    logits = network(images)
    probed = probe(logits, parameters) if probe else None
    total = loss(logits, network(augment(images)) if augment else None)
    gradients = torch.autograd.grad(total, parameters, materialize_grads=True)
    return TwoPassResult(logits.detach(), probed, [list(gradients)])


def recompute(
    network: Network,
    parameters: Sequence[Tensor],
    images: Tensor,
    augment: Augment | None,
    loss: Loss,
    probe: Probe | None,
    second: Pass | None = None,
) -> TwoPassResult:
    """Keep one autograd graph in memory at a time: the second forward pass runs twice, first without a graph.

    ``second`` has network and parameters of the second pass, if they are not those of the first.
    """
    if augment is None:
        return sequential(network, parameters, images, None, loss, probe)
    second_network, second_parameters = second or (network, parameters)
    logits = network(images)
    probed = probe(logits, parameters) if probe else None
    augmented = augment(images)
    with torch.no_grad():
        augmented_logits = second_network(augmented)
    slopes = logit_gradients(loss, logits, augmented_logits)
    first = vjp(logits, slopes, 0, parameters)
    return TwoPassResult(logits.detach(), probed, [first, vjp(second_network(augmented), slopes, 1, second_parameters)])


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
    with _gradients_only_for(parameters, network):
        return engine(network, parameters, images, augment, loss, probe)


def logit_gradients(loss: Loss, *logits: Tensor) -> tuple[Tensor, ...]:
    """Return the gradients of a loss with respect to logits, without going through a network."""
    leaves = [value.detach().requires_grad_() for value in logits]
    return torch.autograd.grad(loss(*leaves), leaves)


def vjp(
    logits: Tensor, slopes: Sequence[Tensor], index: int, parameters: Sequence[Tensor], retain: bool = False
) -> list[Tensor | None]:
    """Return the vector-Jacobian product of ``slopes[index]`` with the logits' Jacobian over the parameters."""
    return list(torch.autograd.grad(logits, parameters, slopes[index], retain_graph=retain, materialize_grads=True))


@contextmanager
def _gradients_only_for(parameters: Sequence[Tensor], network: nn.Module) -> Iterator[None]:
    wanted = {id(value) for value in parameters}
    others = [value for value in network.parameters() if value.requires_grad and id(value) not in wanted]
    for value in others:
        value.requires_grad_(False)
    try:
        yield
    finally:
        for value in others:
            value.requires_grad_(True)
