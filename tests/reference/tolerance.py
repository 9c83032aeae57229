"""Tolerances for comparing two Adam updates, derived from the rounding error of their gradients.

Adam divides a gradient by its own size. In the first step (and in every step of LAW with moments="fresh") an entry
with gradient g changes by

    u(g) = lr · g / (|g| + ε),        du/dg = lr · ε / (|g| + ε)².

The derivative is almost 0 for usual gradients, but lr/ε at g = 0: 1e5 for lr = 1e-3 and 5e6 for lr = 0.05. Two correct
implementations that sum in a different order differ by a rounding error δ in g, and therefore by up to δ·lr/ε in a
weight whose gradient is near zero. No fixed tolerance fits both kinds of entries, so it is computed per entry.

**Error of a gradient entry.** It is a sum of n terms t_i, for a convolution one per image and output pixel. Rounding
changes a sum by about √n·η·Σ|t_i| (Higham and Mary, 2019; the worst case is n·η·Σ|t_i|), where η is half the machine
epsilon. For terms of random sign, Σ|t_i| is about √n times the size of the sum, and the largest entry of the same
tensor is a sum of ordinary size. This gives δ = n·η·max|g|. Measured on the test model (n = 6·16·16 = 1,536, float64;
loop and vectorized loss, contiguous and channels-last layout) the largest error is 70·η·max|g|, 1/22 of this.

**Several Adam steps.** With moments m̂ = Σ a_i g_i and v̂ = Σ b_i g_i² (Σ a_i = Σ b_i = 1) the update is
lr·m̂/(√v̂ + ε), and Cauchy-Schwarz bounds its change, if every g_i changes by at most δ, by

    lr · δ · (1 + K·Σ √b_i) / (√v̂ + ε),        K² = Σ a_i² / b_i.

**Several steps of a method.** After one step the weights of both implementations differ, and the next gradients differ
by more than rounding. Tests therefore compare one step at a time, and the reference continues from the weights of the
implementation under test (`assert_same_step`):

    for images in batches(3):
        output = adapter.step(images)
        logits, weights = reference.step(images)
        assert_same_step(adapter.model, reference.model, reference.gradients, reference.learning_rates, terms=1536)

SGD does not amplify: an error δ becomes lr·δ, and `torch.testing.assert_close` with atol=1e-12 is enough in float64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

BETA_1, BETA_2 = 0.9, 0.999


def update_tolerance(
    gradients: Tensor | Sequence[Tensor],
    lr: float,
    *,
    terms: int,
    eps: float = 1e-8,
    gradient_rtol: float | None = None,
    lr_rtol: float = 0.0,
) -> Tensor:
    """Return, per entry, how much two correct Adam updates of one tensor may differ.

    Args:
        gradients: the gradient; for an Adam that keeps its moments, the gradients of all steps so far, oldest first.
        lr: learning rate of this tensor.
        terms: number of terms that are summed in one gradient entry: images times pixels of the largest feature map.
        eps: Adam's ε.
        gradient_rtol: error of a gradient entry relative to the largest entry of its tensor. If None, ``terms`` · η.
        lr_rtol: relative error of ``lr``, for methods that compute it from the data.
    """
    history = [gradients] if isinstance(gradients, Tensor) else list(gradients)
    rounding = torch.finfo(history[0].dtype).eps / 2
    relative = terms * rounding if gradient_rtol is None else gradient_rtol
    delta = relative * max(float(gradient.abs().max()) for gradient in history)
    steps = len(history)
    if steps == 1:
        slope = eps / ((history[0].abs() - delta).clamp(min=0) + eps) ** 2
    else:
        first = [(1 - BETA_1) * BETA_1 ** (steps - i) / (1 - BETA_1**steps) for i in range(1, steps + 1)]
        second = [(1 - BETA_2) * BETA_2 ** (steps - i) / (1 - BETA_2**steps) for i in range(1, steps + 1)]
        bound = sum(a * a / b for a, b in zip(first, second, strict=True)) ** 0.5
        variance = sum(b * gradient.square() for b, gradient in zip(second, history, strict=True))
        slope = (1 + bound * sum(b**0.5 for b in second)) / ((variance.sqrt() - delta).clamp(min=0) + eps)
    return (lr * slope * delta).clamp(max=2 * lr) + lr * (lr_rtol + 8 * rounding)


def assert_same_update(
    actual: Tensor,
    expected: Tensor,
    gradients: Tensor | Sequence[Tensor],
    lr: float,
    *,
    terms: int,
    eps: float = 1e-8,
    gradient_rtol: float | None = None,
    lr_rtol: float = 0.0,
) -> None:
    """Assert that two tensors are equal after an Adam update, up to the rounding error of its gradients.

    Args:
        actual: the parameter after the update of the implementation under test.
        expected: the parameter after the update of the reference implementation.
        gradients: see `update_tolerance`, as are ``lr``, ``terms``, ``eps``, ``gradient_rtol`` and ``lr_rtol``.
        lr: learning rate of this tensor.
        terms: number of terms that are summed in one gradient entry.
        eps: Adam's ε.
        gradient_rtol: relative error of the gradient.
        lr_rtol: relative error of the learning rate.
    """
    actual, expected = actual.detach(), expected.detach()
    tolerance = (
        update_tolerance(gradients, lr, terms=terms, eps=eps, gradient_rtol=gradient_rtol, lr_rtol=lr_rtol)
        + 4 * torch.finfo(expected.dtype).eps * expected.abs()
    )
    difference = (actual - expected).abs()
    excess = torch.where(difference == 0, 0.0, difference / tolerance).nan_to_num(torch.inf)
    worst = int(excess.argmax())
    if excess.flatten()[worst] > 1:
        raise AssertionError(
            f"{int((excess > 1).sum())} of {excess.numel()} entries differ by more than the rounding error of their "
            f"gradients allows. Largest excess: entry {worst} is {actual.flatten()[worst]}, expected "
            f"{expected.flatten()[worst]} ± {tolerance.flatten()[worst]}."
        )


def assert_same_step(
    actual: nn.Module,
    expected: nn.Module,
    gradients: Mapping[nn.Parameter, Sequence[Tensor]],
    learning_rates: float | Mapping[nn.Parameter, float],
    *,
    terms: int,
    **tolerances: float,
) -> None:
    """Assert that two models are equal after one Adam step, then copy the parameters of ``actual`` to ``expected``.

    Parameters without a learning rate or gradient must be equal bit for bit.

    Args:
        actual: the model of the adapter under test.
        expected: the model of the reference implementation.
        gradients: ``gradients`` of the reference implementation, by parameter of ``expected``.
        learning_rates: one learning rate, or one per updated parameter of ``expected``.
        terms: number of terms that are summed in one gradient entry.
        tolerances: ``gradient_rtol`` and ``lr_rtol`` of `update_tolerance`.
    """
    for name, value in expected.named_parameters():
        lr = learning_rates if isinstance(learning_rates, float) else learning_rates.get(value)
        if lr is None or value not in gradients:
            assert torch.equal(actual.get_parameter(name), value), name
            continue
        try:
            assert_same_update(actual.get_parameter(name), value, gradients[value], lr, terms=terms, **tolerances)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None
    copy_parameters(actual, expected)


def assert_same_sgd_step(actual: nn.Module, expected: nn.Module) -> None:
    """Assert that two float64 models are equal after one SGD step, then copy the parameters of ``actual``."""
    for name, value in expected.named_parameters():
        torch.testing.assert_close(actual.get_parameter(name), value, rtol=0, atol=1e-12)
    copy_parameters(actual, expected)


@torch.no_grad()
def copy_parameters(source: nn.Module, target: nn.Module) -> None:
    """Copy all parameters of ``source`` to ``target``, so that both take the next step from the same weights."""
    for name, value in target.named_parameters():
        value.copy_(source.get_parameter(name))
