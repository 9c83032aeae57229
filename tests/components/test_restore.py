"""Stochastic restore sets back the share it is told to, each weight for itself."""

from __future__ import annotations

import pytest
import torch

from driftlaw.components.teacher import stochastic_restore


def moved() -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    return [torch.ones(200, 100), torch.ones(5000)], [torch.zeros(200, 100), torch.zeros(5000)]


@pytest.mark.parametrize("probability", [0.01, 0.3])
def test_about_the_share_told_goes_back_to_the_bit(probability):
    parameters, originals = moved()
    stochastic_restore(parameters, originals, probability=probability, seed=1)
    for value in parameters:
        assert set(value.unique().tolist()) == {0.0, 1.0}
        assert (value == 0).double().mean() == pytest.approx(probability, rel=0.25)


def test_none_and_all_are_exact():
    parameters, originals = moved()
    stochastic_restore(parameters, originals, probability=0.0, seed=1)
    assert all((value == 1).all() for value in parameters)
    stochastic_restore(parameters, originals, probability=1.0, seed=1)
    assert all((value == 0).all() for value in parameters)


def test_the_seed_alone_decides():
    results = []
    for world, seed in ((1, 5), (2, 5), (1, 6)):
        with torch.random.fork_rng():
            torch.manual_seed(world)
            parameters, originals = moved()
            stochastic_restore(parameters, originals, probability=0.5, seed=seed)
            results.append(torch.cat([value.flatten() for value in parameters]))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


def test_parameters_that_learn_are_set_back_without_a_graph():
    value = torch.nn.Parameter(torch.ones(3))
    stochastic_restore([value], [torch.zeros(3)], probability=1.0, seed=0)
    assert value.requires_grad
    assert value.grad_fn is None
