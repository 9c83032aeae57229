"""A teacher follows its student and nothing else."""

from __future__ import annotations

import torch
from torch import nn

from driftlaw.components.teacher import ema_update, make_teacher


def test_it_moves_a_thousandth_of_the_way():
    student = nn.Linear(2, 2).double()
    teacher = make_teacher(student)
    with torch.no_grad():
        student.weight += 1
    before = teacher.weight.clone()
    ema_update(teacher, student, momentum=0.999)
    torch.testing.assert_close(teacher.weight, 0.999 * before + 0.001 * student.weight)


def test_it_never_learns_and_its_statistics_are_its_own():
    student = nn.Sequential(nn.Conv2d(3, 2, 1), nn.BatchNorm2d(2))
    teacher = make_teacher(student)
    student.train()(torch.rand(4, 3, 5, 5))
    ema_update(teacher, student, momentum=0.9)
    assert not any(value.requires_grad for value in teacher.parameters())
    assert torch.equal(teacher[1].running_mean, torch.zeros(2))
