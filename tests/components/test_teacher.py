"""Teachers: exponential moving average, stochastic restore and warm-up."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from driftlaw.components.teacher import ema_update, make_teacher, stochastic_restore, warm_up_teacher_student


def test_the_teacher_is_an_exponential_moving_average():
    student = nn.Linear(2, 2).double()
    teacher = make_teacher(student)
    with torch.no_grad():
        student.weight += 1
    before = teacher.weight.clone()
    ema_update(teacher, student, momentum=0.999)
    torch.testing.assert_close(teacher.weight, 0.999 * before + 0.001 * student.weight)


def test_the_teacher_is_frozen_and_keeps_its_own_statistics():
    student = nn.Sequential(nn.Conv2d(3, 2, 1), nn.BatchNorm2d(2))
    teacher = make_teacher(student)
    student.train()(torch.rand(4, 3, 5, 5))
    ema_update(teacher, student, momentum=0.9)
    assert not any(value.requires_grad for value in teacher.parameters())
    assert torch.equal(teacher[1].running_mean, torch.zeros(2))


def ones_and_originals() -> tuple[list[Tensor], list[Tensor]]:
    return [torch.ones(200, 100), torch.ones(5000)], [torch.zeros(200, 100), torch.zeros(5000)]


@pytest.mark.parametrize("probability", [0.01, 0.3])
def test_weights_are_restored_exactly_with_the_given_probability(probability):
    parameters, originals = ones_and_originals()
    stochastic_restore(parameters, originals, probability=probability, seed=1)
    for value in parameters:
        assert set(value.unique().tolist()) == {0.0, 1.0}
        assert (value == 0).double().mean() == pytest.approx(probability, rel=0.25)


def test_probabilities_0_and_1_are_exact():
    parameters, originals = ones_and_originals()
    stochastic_restore(parameters, originals, probability=0.0, seed=1)
    assert all((value == 1).all() for value in parameters)
    stochastic_restore(parameters, originals, probability=1.0, seed=1)
    assert all((value == 0).all() for value in parameters)


def test_the_seed_determines_which_weights_are_restored():
    results = []
    for global_seed, seed in ((1, 5), (2, 5), (1, 6)):
        with torch.random.fork_rng():
            torch.manual_seed(global_seed)
            parameters, originals = ones_and_originals()
            stochastic_restore(parameters, originals, probability=0.5, seed=seed)
            results.append(torch.cat([value.flatten() for value in parameters]))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


def test_trainable_parameters_are_restored_without_a_graph():
    value = nn.Parameter(torch.ones(3))
    stochastic_restore([value], [torch.zeros(3)], probability=1.0, seed=0)
    assert value.requires_grad
    assert value.grad_fn is None


def student_and_teacher() -> tuple[nn.Module, nn.Module]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        student, other = (nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).double() for _ in range(2))
    return student, make_teacher(other)


def test_the_learning_rate_of_the_warm_up_rises_linearly():
    student, teacher = student_and_teacher()
    optimizer = torch.optim.SGD(student.parameters(), lr=9.0)
    learning_rates = []

    def batches():
        for _ in range(4):
            yield torch.rand(2, 1, 2, 2, dtype=torch.float64)
            learning_rates.append(optimizer.param_groups[0]["lr"])

    warm_up_teacher_student(student, teacher, optimizer, batches(), steps=4, learning_rate=0.2, momentum=0.9)
    torch.testing.assert_close(learning_rates, [0.05, 0.1, 0.15, 0.2])


def test_the_warm_up_updates_student_and_teacher_and_clears_gradients():
    student, teacher = student_and_teacher()
    student_before, teacher_before = student[1].weight.clone(), teacher[1].weight.clone()
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    images = torch.rand(2, 1, 2, 2, dtype=torch.float64)
    warm_up_teacher_student(student, teacher, optimizer, [images], steps=1, learning_rate=0.1, momentum=0.75)
    assert not torch.equal(student[1].weight, student_before)
    torch.testing.assert_close(teacher[1].weight, 0.75 * teacher_before + 0.25 * student[1].weight)
    assert all(value.grad is None for value in [*student.parameters(), *teacher.parameters()])
