"""A teacher: a frozen copy of the student that follows it slowly."""

from __future__ import annotations

import copy

import torch
from torch import nn


def make_teacher(student: nn.Module) -> nn.Module:
    """Return a copy of the student, modes and statistics included, of which nothing learns by gradients."""
    return copy.deepcopy(student).requires_grad_(False)


@torch.no_grad()
def follow(teacher: nn.Module, student: nn.Module, momentum: float) -> None:
    """Move every parameter of the teacher to ``momentum``·teacher + (1 − ``momentum``)·student; buffers stay.

    >>> student, other = nn.Linear(1, 1), nn.Linear(1, 1)
    >>> teacher = make_teacher(other)
    >>> follow(teacher, student, momentum=0.0)
    >>> torch.equal(teacher.weight, student.weight)
    True
    """
    torch._foreach_lerp_(list(teacher.parameters()), list(student.parameters()), 1 - momentum)
