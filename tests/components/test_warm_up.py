"""The warm-up moves both networks at a rate that rises."""

from __future__ import annotations

import torch
from torch import nn

from driftlaw.components.teacher import make_teacher, warm_up_teacher_student


def pair() -> tuple[nn.Module, nn.Module]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        student, other = (nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).double() for _ in range(2))
    return student, make_teacher(other)


def test_the_rate_rises_linearly_to_the_last_step():
    student, teacher = pair()
    optimizer = torch.optim.SGD(student.parameters(), lr=9.0)
    rates = []

    def batches():
        for _ in range(4):
            yield torch.rand(2, 1, 2, 2, dtype=torch.float64)
            rates.append(optimizer.param_groups[0]["lr"])

    warm_up_teacher_student(student, teacher, optimizer, batches(), steps=4, learning_rate=0.2, momentum=0.9)
    torch.testing.assert_close(rates, [0.05, 0.1, 0.15, 0.2])


def test_the_teacher_follows_and_no_gradient_is_left():
    student, teacher = pair()
    before = [value.clone() for value in (student[1].weight, teacher[1].weight)]
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    images = torch.rand(2, 1, 2, 2, dtype=torch.float64)
    warm_up_teacher_student(student, teacher, optimizer, [images], steps=1, learning_rate=0.1, momentum=0.75)
    assert not torch.equal(student[1].weight, before[0])
    torch.testing.assert_close(teacher[1].weight, 0.75 * before[1] + 0.25 * student[1].weight)
    assert all(value.grad is None for value in [*student.parameters(), *teacher.parameters()])
