"""The tolerance of an Adam update accepts rounding errors and rejects wrong updates."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tests.reference.tolerance import assert_same_step, assert_same_update, copy_parameters, update_tolerance

ROUNDING = 2.0**-53
TERMS = 1536


def gradients(steps: int) -> list[Tensor]:
    """Return float64 gradients; the first hundred entries are near zero in every step."""
    generator = torch.Generator().manual_seed(0)
    values = [torch.randn(1000, generator=generator, dtype=torch.float64) for _ in range(steps)]
    for value in values:
        value[:100] *= 1e-12
    return values


def with_rounding_errors(values: list[Tensor], size: float) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    errors = [torch.rand(value.shape, generator=generator, dtype=value.dtype) * 2 - 1 for value in values]
    return [value + size * value.abs().max() * error for value, error in zip(values, errors, strict=True)]


def after_adam(values: list[Tensor], lr: float) -> Tensor:
    weight = nn.Parameter(torch.ones(1000, dtype=torch.float64))
    optimizer = torch.optim.Adam([weight], lr=lr)
    for value in values:
        before = weight.detach().clone()
        weight.grad = value.clone()
        optimizer.step()
        change = weight.detach() - before
        with torch.no_grad():
            weight.fill_(1)  # as after copy_parameters: every step starts from the same weights
    return 1 + change


@pytest.mark.parametrize("lr", [1e-3, 0.05])
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_rounding_errors_of_gradients_are_accepted(lr, steps):
    exact = gradients(steps)
    rounded = with_rounding_errors(exact, TERMS * ROUNDING)
    assert_same_update(after_adam(rounded, lr), after_adam(exact, lr), exact, lr, terms=TERMS)


@pytest.mark.parametrize("steps", [1, 3])
def test_entries_near_zero_need_more_than_a_fixed_tolerance(steps):
    exact = gradients(steps)
    rounded = with_rounding_errors(exact, TERMS * ROUNDING)
    difference = (after_adam(rounded, 0.05) - after_adam(exact, 0.05)).abs()
    assert difference[:100].max() > 1e-8
    assert difference[100:].max() < 1e-9


@pytest.mark.parametrize("steps", [1, 3])
def test_a_wrong_learning_rate_or_gradient_is_rejected(steps):
    exact = gradients(steps)
    expected = after_adam(exact, 1e-3)
    with pytest.raises(AssertionError, match="of 1000 entries differ"):
        assert_same_update(after_adam(exact, 1.0001e-3), expected, exact, 1e-3, terms=TERMS)
    wrong = [value.clone() for value in exact]
    wrong[-1][500] *= -1
    with pytest.raises(AssertionError, match="1 of 1000 entries differ"):
        assert_same_update(after_adam(wrong, 1e-3), expected, exact, 1e-3, terms=TERMS)


def test_nan_is_rejected():
    exact = gradients(1)
    broken = after_adam(exact, 1e-3)
    broken[7] = torch.nan
    with pytest.raises(AssertionError, match="entry 7 is nan"):
        assert_same_update(broken, after_adam(exact, 1e-3), exact, 1e-3, terms=TERMS)


def test_the_tolerance_is_tight_for_usual_gradients_and_never_exceeds_two_steps():
    tolerance = update_tolerance(gradients(1), 1e-3, terms=TERMS)
    usual = gradients(1)[0].abs() > 0.01
    assert tolerance[usual].max() < 1e-17
    assert 1e-9 < tolerance[:100].min() < tolerance.max() <= 2.001e-3


def test_a_relative_error_of_the_learning_rate_is_added():
    plain, wider = (update_tolerance(gradients(1), 1e-3, terms=TERMS, lr_rtol=rtol) for rtol in (0.0, 1e-10))
    torch.testing.assert_close(wider - plain, torch.full_like(plain, 1e-13), rtol=1e-3, atol=0)


def test_copied_parameters_are_equal_and_still_require_grad():
    source, target = nn.Linear(2, 2), nn.Linear(2, 2)
    copy_parameters(source, target)
    assert torch.equal(source.weight, target.weight)
    assert target.weight.requires_grad


def test_a_step_is_compared_parameter_by_parameter():
    actual, expected = nn.Linear(2, 1).double(), nn.Linear(2, 1).double()
    copy_parameters(expected, actual)
    gradient = torch.tensor([[0.5, -1e-14]], dtype=torch.float64)
    with torch.no_grad():
        actual.weight += torch.tensor([[0.0, 1e-11]])
    assert_same_step(actual, expected, {expected.weight: [gradient]}, 1e-3, terms=TERMS)
    assert torch.equal(actual.weight, expected.weight)
    with torch.no_grad():
        actual.weight += torch.tensor([[1e-11, 0.0]])
    with pytest.raises(AssertionError, match="weight: 1 of 2 entries"):
        assert_same_step(actual, expected, {expected.weight: [gradient]}, {expected.weight: 1e-3}, terms=TERMS)
    with pytest.raises(AssertionError, match="weight"):
        assert_same_step(actual, expected, {}, 1e-3, terms=TERMS)
