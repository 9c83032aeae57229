"""InfoNCE and diversity against their definitions."""

from __future__ import annotations

import math

import pytest
import torch

from driftlaw.components.contrastive import info_nce
from driftlaw.components.losses import negative_diversity


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def cosine(one: torch.Tensor, other: torch.Tensor) -> float:
    return float(one @ other / one.norm() / other.norm())


def test_info_nce_equals_its_definition():
    query, key, negatives = numbers(3, 4), numbers(3, 4, seed=1), numbers(3, 5, seed=2).tanh()
    counts = numbers(3, 5, seed=3) > 0
    losses = []
    for number in range(3):
        positive = math.exp(cosine(query[number], key[number]) / 0.07)
        others = [math.exp(float(value) / 0.07) for value in negatives[number][counts[number]]]
        losses.append(-math.log(positive / (positive + sum(others))))
    loss = info_nce(query, key, negatives, counts, temperature=0.07)
    assert float(loss) == pytest.approx(sum(losses) / 3, rel=1e-12)


def test_without_negatives_there_is_nothing_to_tell_apart():
    query = numbers(3, 4).requires_grad_()
    loss = info_nce(query, numbers(3, 4, seed=1), numbers(3, 5), torch.zeros(3, 5, dtype=torch.bool), 0.07)
    loss.backward()
    assert loss == 0
    assert query.grad.abs().max() < 1e-12


def test_diversity_equals_its_definition():
    logits = numbers(6, 4)
    mean = logits.softmax(dim=1).mean(dim=0)
    assert float(negative_diversity(logits)) == pytest.approx(float((mean * mean.log()).sum()), rel=1e-12)


def test_diversity_of_one_class_alone_is_finite_and_so_is_its_gradient():
    logits = torch.tensor([[500.0, 0.0], [500.0, 0.0]], requires_grad=True)
    loss = negative_diversity(logits)
    loss.backward()
    assert loss == 0
    assert logits.grad.isfinite().all()
