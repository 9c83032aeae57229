"""A teacher: a frozen copy of the student that follows it slowly."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from driftlaw.components.losses import symmetric_cross_entropy
from driftlaw.components.optimizers import minimize_step


def make_teacher(student: nn.Module) -> nn.Module:
    """Return a copy of the student, modes and statistics included, of which nothing learns by gradients."""
    return copy.deepcopy(student).requires_grad_(False)


@torch.no_grad()
def ema_update(teacher: nn.Module, student: nn.Module, momentum: float) -> None:
    """Move every parameter of the teacher to ``momentum``·teacher + (1 − ``momentum``)·student; buffers stay.

    >>> student, other = nn.Linear(1, 1), nn.Linear(1, 1)
    >>> teacher = make_teacher(other)
    >>> ema_update(teacher, student, momentum=0.0)
    >>> torch.equal(teacher.weight, student.weight)
    True
    """
    torch._foreach_lerp_(list(teacher.parameters()), list(student.parameters()), 1 - momentum)


@torch.no_grad()
def stochastic_restore(
    parameters: Iterable[Tensor], originals: Iterable[Tensor], *, probability: float, seed: int
) -> None:
    """Set every single weight back to its original with the given probability, each drawn for itself.

    Args:
        parameters: what has moved; changed in place.
        originals: tensors of the same shapes, in the same order.
        probability: of a weight to go back.
        seed: of the draws, which are made where the parameters are, so that no device waits for another.
    """
    generator: torch.Generator | None = None
    for value, original in zip(parameters, originals, strict=True):
        if generator is None:
            generator = torch.Generator(value.device).manual_seed(seed)
        goes_back = torch.rand(value.shape, generator=generator, device=value.device) < probability
        value.copy_(torch.where(goes_back, original, value))


def warm_up_teacher_student(
    student: nn.Module,
    teacher: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Iterable[Tensor],
    *,
    steps: int,
    learning_rate: float,
    momentum: float,
) -> None:
    """Take one step a batch down the symmetric cross-entropy of student and teacher; both networks are changed.

    Args:
        student: the network whose parameters the optimizer moves.
        teacher: its frozen twin, which follows.
        optimizer: of the student.
        batches: images (n, c, h, w); no label is asked for.
        steps: how many batches there are; the rate of step i, from 1, is ``learning_rate``·i/``steps``.
        learning_rate: where the rate ends.
        momentum: how much of itself the teacher keeps in a step.
    """
    for step, images in enumerate(batches, start=1):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * step / steps
        with torch.no_grad():
            taught = teacher(images)
        minimize_step(symmetric_cross_entropy(taught, student(images)), optimizer)
        ema_update(teacher, student, momentum)
