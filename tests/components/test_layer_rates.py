"""Layer rates: groups, the scaler, and steps that equal torch's Adam."""

from __future__ import annotations

import pytest
import torch

from driftlaw.components.layer_rates import ParameterGroups, adam_step, exponential_min_max, first_adam_step


def some_tensors(seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((4, 3), (5,), (2, 2, 2))]


@pytest.mark.parametrize("steps", [1, 5])
def test_the_fresh_step_is_a_new_adam_every_time(steps):
    ours, theirs = some_tensors(0), some_tensors(0)
    rates = torch.tensor([1e-2, 1e-3, 0.0], dtype=torch.float64)
    for step in range(steps):
        gradients = some_tensors(step + 1)
        first_adam_step(ours, gradients, rates)
        for value, gradient, rate in zip(theirs, gradients, rates, strict=True):
            value.grad = gradient
            torch.optim.Adam([value], lr=float(rate)).step()
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-12)


def test_float16_which_has_no_epsilon_moves_where_there_is_a_gradient_and_rests_where_there_is_none():
    parameter, gradient = torch.ones(3).half(), torch.tensor([0.0, 1e-3, -1e-3]).half()
    first_adam_step([parameter], [gradient], torch.tensor([0.5]))
    torch.testing.assert_close(parameter.float(), torch.tensor([1.0, 0.5, 1.5]), rtol=1e-3, atol=0)


def test_the_kept_step_is_one_adam_all_along():
    ours, theirs = some_tensors(0), some_tensors(0)
    rates = torch.tensor([1e-2, 1e-3, 0.0], dtype=torch.float64)
    first, second = ([torch.zeros_like(value) for value in ours] for _ in range(2))
    optimizer = torch.optim.Adam([{"params": [v], "lr": float(r)} for v, r in zip(theirs, rates, strict=True)])
    for step in range(1, 6):
        gradients = some_tensors(step)
        adam_step(ours, gradients, rates, first=first, second=second, step=step)
        for value, gradient in zip(theirs, gradients, strict=True):
            value.grad = gradient
        optimizer.step()
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-12)


def test_the_scaler_maps_the_flattest_to_0_and_the_sharpest_to_1():
    scaled = exponential_min_max(torch.tensor([2.0, 3.0, 6.0]), 0.5)
    torch.testing.assert_close(scaled, torch.tensor([0.0, 0.5, 1.0]))


def test_tau_0_gives_everyone_the_full_rate():
    assert torch.equal(exponential_min_max(torch.tensor([1.0, 2.0, 4.0]), 0.0), torch.ones(3))


def test_equal_layers_all_stand_still():
    assert torch.equal(exponential_min_max(torch.full((3,), 2.0), 1.0), torch.zeros(3))


@pytest.mark.parametrize(
    ("grouping", "names", "mean"),
    [
        ("tensor", ["a.0.conv.weight", "a.0.conv.bias", "a.1.weight"], [1.0, 2.0, 4.0]),
        ("module", ["a.0.conv", "a.1"], [(1 * 3 + 4 * 1) / 4, 16.0]),
        ("block", ["a.0", "a.1"], [(1 * 3 + 4 * 1) / 4, 16.0]),
    ],
)
def test_a_group_weighs_its_tensors_by_their_size(grouping, names, mean):
    groups = ParameterGroups(
        ["a.0.conv.weight", "a.0.conv.bias", "a.1.weight"], torch.tensor([3.0, 1.0, 2.0]), grouping
    )
    sharpness = groups.importance(torch.tensor([1.0, 4.0, 16.0]), "mean")
    assert groups.names == names
    expected = torch.tensor(mean if grouping == "tensor" else [value**0.5 for value in mean])
    torch.testing.assert_close(sharpness, expected)


def test_the_trace_grows_with_the_size_of_a_tensor():
    groups = ParameterGroups(["a.weight", "b.weight"], torch.tensor([4.0, 400.0]), "tensor")
    torch.testing.assert_close(groups.importance(torch.ones(2), "trace"), torch.tensor([2.0, 20.0]))
