"""Prior correction."""

from __future__ import annotations

import pytest
import torch

from driftlaw.components.prior import correct_prior


def random_logits(count: int, classes: int = 5) -> torch.Tensor:
    return 2 * torch.randn(count, classes, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("count", [1, 3, 40])
def test_it_equals_its_definition(count):
    logits = random_logits(count)
    prior = logits.softmax(1).mean(0)
    smoothing = max(1 / count, 1 / 5) / prior.max()
    smoothed = (prior + smoothing) / (1 + 5 * smoothing)
    assert float(smoothed.sum()) == pytest.approx(1)
    torch.testing.assert_close(correct_prior(logits), 5 * logits * smoothed)


def test_predictions_are_those_without_the_factor_and_the_scale_of_logits_is_kept():
    logits = random_logits(40)
    corrected = correct_prior(logits)
    prior = logits.softmax(1).mean(0)
    smoothing = 1 / 5 / prior.max()
    assert torch.equal(corrected.argmax(1), (logits * (prior + smoothing)).argmax(1))
    assert 0.5 < float(corrected.norm() / logits.norm()) < 2
