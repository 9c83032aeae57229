"""Teacher models: exponential moving average, warm-up, and the stochastic restore of CoTTA."""

import copy
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from driftlaw.components.losses import symmetric_cross_entropy
from driftlaw.components.optimizers import minimize_step


def make_teacher(student: nn.Module) -> nn.Module:
    """Return a copy of the student, including modes and statistics, with all parameters frozen."""
    return copy.deepcopy(student).requires_grad_(False)


@torch.no_grad()
def ema_update(teacher: nn.Module, student: nn.Module, momentum: float) -> None:
    """Set every teacher parameter to ``momentum``·teacher + (1 − ``momentum``)·student; buffers are not changed.

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
    """Restore every single weight to its original value with the given probability (CoTTA).

    Args:
        parameters: tensors to change in place.
        originals: tensors of the same shapes, in the same order.
        probability: probability that a weight is restored, independently of the others.
        seed: seed of the random numbers, which are drawn on the device of the parameters.
    """
    generator: torch.Generator | None = None
    for value, original in zip(parameters, originals, strict=True):
        if generator is None:
            generator = torch.Generator(value.device).manual_seed(seed)
        restored = torch.rand(value.shape, generator=generator, device=value.device) < probability
        value.copy_(torch.where(restored, original, value))


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
    """Take one step per batch on the symmetric cross-entropy of student and teacher; both models are updated (RMT).

    Args:
        student: model that the optimizer updates.
        teacher: frozen copy of it, updated by `ema_update`.
        optimizer: optimizer of the student.
        batches: images (n, c, h, w).
        steps: number of batches. The learning rate of step i, from 1, is ``learning_rate``·i/``steps``.
        learning_rate: learning rate of the last step.
        momentum: of the moving average.
    """
    for step, images in enumerate(batches, start=1):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * step / steps
        with torch.no_grad():
            teacher_logits = teacher(images)
        minimize_step(symmetric_cross_entropy(teacher_logits, student(images)), optimizer)
        ema_update(teacher, student, momentum)
