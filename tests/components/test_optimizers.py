"""Optimizers have the settings that the papers share."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from driftlaw.components.optimizers import make_optimizer, minimize_step, step_if
from driftlaw.errors import UsageError


def test_adam_has_the_defaults_of_its_paper():
    optimizer = make_optimizer("adam", nn.Linear(2, 2).parameters(), 1e-3)
    assert isinstance(optimizer, torch.optim.Adam)
    (group,) = optimizer.param_groups
    assert (group["lr"], group["betas"], group["eps"], group["weight_decay"]) == (1e-3, (0.9, 0.999), 1e-8, 0)


def test_sgd_has_nesterov_momentum():
    optimizer = make_optimizer("sgd", nn.Linear(2, 2).parameters(), 0.01)
    assert isinstance(optimizer, torch.optim.SGD)
    (group,) = optimizer.param_groups
    assert (group["lr"], group["momentum"], group["nesterov"], group["weight_decay"]) == (0.01, 0.9, True, 0)


def test_no_parameters_is_an_error():
    with pytest.raises(UsageError, match="no parameters to adapt"):
        make_optimizer("adam", nn.Flatten().parameters(), 1e-3)


def test_a_step_descends_and_clears_gradients():
    weight = nn.Parameter(torch.tensor([2.0]))
    minimize_step(weight.square().sum(), torch.optim.SGD([weight], lr=0.25))
    assert weight.item() == 1
    assert weight.grad is None


@pytest.mark.parametrize("kind", ["adam", "sgd"])
@pytest.mark.parametrize("taken", [[True, True], [False, True, False, True], [True, False, False]])
def test_a_conditional_step_equals_the_steps_that_are_taken(kind, taken):
    weights = [nn.Parameter(torch.tensor([2.0, -1.0])) for _ in range(2)]
    conditional, plain = (make_optimizer(kind, [weight], 0.1) for weight in weights)
    for number, condition in enumerate(taken):
        (weights[0] ** 2 * (number + 1)).sum().backward()
        step_if(torch.tensor(condition), conditional)
        if condition:
            minimize_step((weights[1] ** 2 * (number + 1)).sum(), plain)
    assert torch.equal(*weights)
    assert weights[0].grad is None
    own, expected = (optimizer.state_dict()["state"][0] for optimizer in (conditional, plain))
    assert own.keys() == expected.keys()
    assert all(torch.equal(own[name], value) for name, value in expected.items())
