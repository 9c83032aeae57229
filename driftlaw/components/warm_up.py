"""Warm-up: student and teacher get used to each other on source images before the first test batch."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from driftlaw.components.agreement import symmetric_cross_entropy
from driftlaw.components.optimizers import step_down
from driftlaw.components.teacher import follow


def warm_up_pair(
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
        step_down(symmetric_cross_entropy(taught, student(images)), optimizer)
        follow(teacher, student, momentum)
