"""Layer-wise learning rates: groups, min-max scaling, and steps that equal torch's Adam."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from driftlaw.components.layer_rates import (
    ParameterGroups,
    adam_update,
    exponential_min_max,
    first_adam_step,
    sum_gradients,
)


def random_tensors(seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((4, 3), (5,), (2, 2, 2))]


@pytest.mark.parametrize("steps", [1, 5])
def test_the_first_adam_step_equals_a_new_adam_in_every_step(steps):
    actual, expected = random_tensors(0), random_tensors(0)
    rates = torch.tensor([1e-2, 1e-3, 0.0], dtype=torch.float64)
    for step in range(steps):
        gradients = random_tensors(step + 1)
        first_adam_step(actual, gradients, rates)
        for value, gradient, rate in zip(expected, gradients, rates, strict=True):
            value.grad = gradient
            torch.optim.Adam([value], lr=float(rate)).step()
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-14)


def test_steps_with_kept_moments_equal_one_adam():
    actual, expected = random_tensors(0), random_tensors(0)
    rates = torch.tensor([1e-2, 1e-3, 0.0], dtype=torch.float64)
    first, second = ([torch.zeros_like(value) for value in actual] for _ in range(2))
    optimizer = torch.optim.Adam([{"params": [v], "lr": float(r)} for v, r in zip(expected, rates, strict=True)])
    for step in range(1, 6):
        gradients = random_tensors(step)
        adam_update(actual, [gradients], rates, first, second, step)
        for value, gradient in zip(expected, gradients, strict=True):
            value.grad = gradient
        optimizer.step()
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-14)


def test_gradients_are_summed_in_the_dtypes_of_the_parameters():
    parameters = random_tensors(0)
    first, second = random_tensors(1), random_tensors(2)
    summands = [[value.float() for value in first], [second[0].float(), None, second[2].float()]]
    sums = sum_gradients(parameters, summands)
    assert [value.dtype for value in sums] == [torch.float64] * 3
    torch.testing.assert_close(sums, [first[0] + second[0], first[1], first[2] + second[2]], rtol=0, atol=1e-6)


def test_min_max_scaling_maps_the_lowest_to_0_and_the_highest_to_1():
    scaled = exponential_min_max(torch.tensor([2.0, 3.0, 6.0]), 0.5)
    torch.testing.assert_close(scaled, torch.tensor([0.0, 0.5, 1.0]))


def test_tau_0_gives_every_layer_the_full_rate():
    assert torch.equal(exponential_min_max(torch.tensor([1.0, 2.0, 4.0]), 0.0), torch.ones(3))


def test_equal_layers_all_get_weight_0():
    assert torch.equal(exponential_min_max(torch.full((3,), 2.0), 1.0), torch.zeros(3))


@pytest.mark.parametrize(
    ("grouping", "names", "mean"),
    [
        ("tensor", ["a.0.conv.weight", "a.0.conv.bias", "a.1.weight"], [1.0, 4.0, 16.0]),
        ("module", ["a.0.conv", "a.1"], [(1 * 3 + 4 * 1) / 4, 16.0]),
        ("block", ["a.0", "a.1"], [(1 * 3 + 4 * 1) / 4, 16.0]),
    ],
)
def test_the_importance_of_a_group_weights_its_tensors_by_size(grouping, names, mean):
    parameters = ["a.0.conv.weight", "a.0.conv.bias", "a.1.weight"]
    groups = ParameterGroups(parameters, torch.tensor([3.0, 1.0, 2.0]), grouping)
    importance = groups.importance(torch.tensor([1.0, 4.0, 16.0]), "mean")
    assert groups.names == names
    torch.testing.assert_close(importance, torch.tensor(mean).sqrt())


def test_the_trace_grows_with_the_size_of_a_tensor():
    groups = ParameterGroups(["a.weight", "b.weight"], torch.tensor([4.0, 400.0]), "tensor")
    torch.testing.assert_close(groups.importance(torch.ones(2), "trace"), torch.tensor([2.0, 20.0]))
