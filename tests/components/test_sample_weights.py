"""Weights and filters of images, one image at a time."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from driftlaw.components.sample_weights import (
    diversity_certainty_weights,
    masked_mean,
    rescale,
    select_reliable,
    update_mean_probabilities,
)
from tests.reference.components import cosine, softmax


def random_logits(count: int = 6, classes: int = 4) -> Tensor:
    return 3 * torch.randn(count, classes, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_weights_equal_their_definition():
    logits, mean = random_logits(), torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
    diversity = [1 - float(cosine(mean, softmax(row))) for row in logits]
    certainty = [float((softmax(row) * softmax(row).log()).sum()) for row in logits]
    scaled = [[(v - min(values)) / (max(values) - min(values)) for v in values] for values in (diversity, certainty)]
    threshold = sum(scaled[0]) / len(logits)
    expected = [math.exp(d * c / 0.5) if d >= threshold else 0.0 for d, c in zip(*scaled, strict=True)]
    weights = diversity_certainty_weights(logits, mean, temperature=0.5)
    torch.testing.assert_close(weights, torch.tensor(expected, dtype=torch.float64))
    assert 0 < (weights == 0).sum() < len(logits)


@pytest.mark.parametrize("logits", [random_logits(1), random_logits(1).expand(5, -1)], ids=["one", "equal"])
def test_weights_of_one_image_and_of_equal_images_are_one(logits):
    weights = diversity_certainty_weights(logits, torch.full((4,), 0.25, dtype=torch.float64), temperature=1 / 3)
    assert torch.equal(weights, torch.ones(len(logits), dtype=torch.float64))


def test_rescaled_equal_values_are_zero():
    assert torch.equal(rescale(torch.full((3,), 7.0)), torch.zeros(3))


def test_running_mean_moves_to_the_mean_of_the_batch_and_keeps_its_dtype():
    logits, mean = random_logits().float(), torch.full((4,), 0.25, dtype=torch.float64)
    update_mean_probabilities(mean, logits, momentum=0.9)
    torch.testing.assert_close(mean, 0.9 * 0.25 + 0.1 * logits.softmax(1).mean(0).double())
    assert mean.dtype == torch.float64


def test_mean_over_no_value_is_zero_with_a_gradient_of_zero():
    values = torch.ones(3, requires_grad=True)
    mean = masked_mean(values, torch.zeros(3, dtype=torch.bool))
    mean.backward()
    assert mean == 0
    assert torch.equal(values.grad, torch.zeros(3))


@pytest.mark.parametrize("first", [True, False])
def test_reliable_images_equal_their_definition(first):
    logits = random_logits(12)
    mean = torch.zeros(4, dtype=torch.float64) if first else torch.tensor([0.7, 0.1, 0.1, 0.1], dtype=torch.float64)
    kept, entropies = [], [-float((softmax(row) * softmax(row).log()).sum()) for row in logits]
    for index, row in enumerate(logits):
        is_new = first or abs(cosine(mean, softmax(row))) < 0.5
        if entropies[index] < 0.6 and is_new:
            kept.append(index)
    assert 0 < len(kept) < len(logits)
    kept_mean = logits[kept].softmax(1).mean(0)
    expected = kept_mean if first else 0.8 * mean + 0.2 * kept_mean
    result = select_reliable(logits, mean, entropy_threshold=0.6, similarity_threshold=0.5, momentum=0.8)
    assert result.nonzero().flatten().tolist() == kept
    torch.testing.assert_close(mean, expected)


def test_running_mean_stays_if_no_image_is_kept():
    mean = torch.tensor([0.7, 0.1, 0.1, 0.1])
    assert not select_reliable(random_logits(), mean, 1e-6, 0.5, 0.9).any()
    assert torch.equal(mean, torch.tensor([0.7, 0.1, 0.1, 0.1]))
