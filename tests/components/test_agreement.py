"""The symmetric cross-entropy."""

from __future__ import annotations

import torch

from driftlaw.components.losses import entropy, symmetric_cross_entropy


def two_answers() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(5, 3, generator=generator, dtype=torch.float64) for _ in range(2)]


def test_it_is_half_of_the_cross_entropy_in_either_direction():
    one, other = two_answers()
    p, q = one.softmax(1), other.softmax(1)
    there, back = -(p * q.log()).sum(1).mean(), -(q * p.log()).sum(1).mean()
    torch.testing.assert_close(symmetric_cross_entropy(one, other), (there + back) / 2)


def test_the_order_is_nothing_to_it_and_of_an_answer_with_itself_it_is_the_entropy():
    one, other = two_answers()
    assert symmetric_cross_entropy(one, other) == symmetric_cross_entropy(other, one)
    torch.testing.assert_close(symmetric_cross_entropy(one, one), entropy(one))
