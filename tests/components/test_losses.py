"""Losses without labels, against their definitions."""

from __future__ import annotations

import math

import pytest
import torch

from driftlaw.components.losses import entropy, pseudo_label_nll, soft_cross_entropy


def test_the_entropy_of_a_uniform_answer_is_log_classes():
    assert float(entropy(torch.zeros(3, 8))) == pytest.approx(math.log(8))


def test_a_certain_answer_has_no_entropy():
    assert float(entropy(torch.tensor([[1000.0, 0.0]]))) == 0


def test_cross_entropy_is_least_when_both_agree():
    target = torch.tensor([[1.0, 2.0, 0.5]])
    assert float(soft_cross_entropy(target, target)) == pytest.approx(float(entropy(target)))
    assert soft_cross_entropy(target, target.flip(1)) > entropy(target)


def test_gradients_flow_through_both_sides_unless_detached():
    target, answer = (torch.randn(2, 3, requires_grad=True) for _ in range(2))
    soft_cross_entropy(target, answer).backward()
    assert target.grad is not None
    assert answer.grad is not None


def test_own_label_likelihood_is_minus_the_log_of_the_highest_probability():
    logits = torch.tensor([[1.0, 3.0], [2.0, 0.0]])
    expected = -logits.softmax(1).amax(1).log().mean()
    assert float(pseudo_label_nll(logits)) == pytest.approx(float(expected))
