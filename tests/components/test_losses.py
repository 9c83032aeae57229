"""Losses without labels, compared with their definitions."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from driftlaw import dense
from driftlaw.components.losses import (
    entropy,
    negative_diversity,
    pseudo_label_nll,
    soft_cross_entropy,
    soft_likelihood_ratio,
    symmetric_cross_entropy,
)


def random_logits(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*(shape or (5, 3)), generator=generator, dtype=torch.float64)


def test_entropy_of_uniform_predictions_is_log_classes():
    assert float(entropy(torch.zeros(3, 8))) == pytest.approx(math.log(8))


def test_entropy_of_a_certain_prediction_is_zero():
    assert float(entropy(torch.tensor([[1000.0, 0.0]]))) == 0


def test_cross_entropy_is_smallest_for_equal_predictions():
    target = torch.tensor([[1.0, 2.0, 0.5]])
    assert float(soft_cross_entropy(target, target)) == pytest.approx(float(entropy(target)))
    assert soft_cross_entropy(target, target.flip(1)) > entropy(target)


@pytest.mark.parametrize("detached", [False, True])
def test_gradients_of_cross_entropy_equal_those_of_the_formula(detached):
    target, logits = random_logits(0).requires_grad_(), random_logits(1).requires_grad_()
    soft_cross_entropy(target.detach() if detached else target, logits).backward()
    p, q = target.detach().softmax(1), logits.detach().softmax(1)
    torch.testing.assert_close(logits.grad, (q - p) / len(logits))
    if detached:
        assert target.grad is None
    else:
        negative_log_q = -q.log()
        expected = p * (negative_log_q - (p * negative_log_q).sum(1, keepdim=True)) / len(logits)
        torch.testing.assert_close(target.grad, expected)


def test_symmetric_cross_entropy_is_half_of_each_direction():
    first, second = random_logits(0), random_logits(1)
    p, q = first.softmax(1), second.softmax(1)
    forward, backward = -(p * q.log()).sum(1).mean(), -(q * p.log()).sum(1).mean()
    torch.testing.assert_close(symmetric_cross_entropy(first, second), (forward + backward) / 2)
    assert symmetric_cross_entropy(first, second) == symmetric_cross_entropy(second, first)
    torch.testing.assert_close(symmetric_cross_entropy(first, second, "none").mean(), (forward + backward) / 2)
    torch.testing.assert_close(symmetric_cross_entropy(first, first), entropy(first))


def test_soft_likelihood_ratio_equals_its_definition():
    logits = random_logits(0)
    p = logits.softmax(1)
    expected = -(p * (p / (1 - p) + 1e-5).log()).sum(1)
    torch.testing.assert_close(soft_likelihood_ratio(logits, reduction="none"), expected)
    torch.testing.assert_close(soft_likelihood_ratio(logits), expected.mean())


def test_soft_likelihood_ratio_has_no_gradient_above_the_limit():
    logits = torch.tensor([[20.0, 0.0], [1.0, 0.0]], requires_grad=True)
    first, second = soft_likelihood_ratio(logits, reduction="none")
    assert first.isfinite()
    (first + second).backward()
    assert logits.grad[0].abs().max() < 1e-6
    assert logits.grad[1].abs().max() > 0.1


@pytest.mark.parametrize("loss", [entropy, soft_likelihood_ratio])
def test_losses_without_reduction_have_one_value_per_image(loss):
    logits = random_logits(0)
    losses = loss(logits, reduction="none")
    torch.testing.assert_close(losses, torch.stack([loss(row[None]) for row in logits]))


def test_pseudo_label_nll_is_minus_the_log_of_the_highest_probability():
    logits = torch.tensor([[1.0, 3.0], [2.0, 0.0]])
    expected = -logits.softmax(1).amax(1).log().mean()
    assert float(pseudo_label_nll(logits)) == pytest.approx(float(expected))


@pytest.mark.parametrize("loss", [entropy, pseudo_label_nll, lambda logits: soft_cross_entropy(logits, logits.flip(0))])
def test_losses_of_dense_logits_average_over_pixels(loss):
    dense = random_logits(2, 2, 3, 4, 5)
    per_pixel = dense.permute(2, 3, 0, 1)
    expected = torch.stack([loss(pixel) for row in per_pixel for pixel in row]).mean()
    torch.testing.assert_close(loss(dense), expected)


def test_negative_diversity_equals_its_definition():
    logits = random_logits(0, 6, 4)
    mean = logits.softmax(dim=1).mean(dim=0)
    assert float(negative_diversity(logits)) == pytest.approx(float((mean * mean.log()).sum()), rel=1e-12)


def test_negative_diversity_of_a_single_predicted_class_has_a_finite_gradient():
    logits = torch.tensor([[500.0, 0.0], [500.0, 0.0]], requires_grad=True)
    loss = negative_diversity(logits)
    loss.backward()
    assert loss == 0
    assert logits.grad.isfinite().all()


def test_losses_and_gradients_of_many_pixels_are_those_of_few(monkeypatch):
    first, second = random_logits(0, 1, 5, 70, 70).requires_grad_(), random_logits(1, 1, 5, 70, 70)

    def results():
        losses = [symmetric_cross_entropy(first, second), soft_likelihood_ratio(first), pseudo_label_nll(first)]
        return [*losses, *(torch.autograd.grad(loss, first)[0] for loss in losses)]

    assert first.shape[2:].numel() > dense.MANY_ROWS
    fast = results()
    monkeypatch.setattr(dense, "MANY_ROWS", 10**9)
    torch.testing.assert_close(fast, results(), rtol=1e-12, atol=1e-15)
