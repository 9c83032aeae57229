"""How far two answers to the same images agree, whichever of them is the target."""

from __future__ import annotations

from torch import Tensor

from driftlaw.components.losses import cross_entropy_between


def symmetric_cross_entropy(one: Tensor, other: Tensor) -> Tensor:
    """Return half the cross-entropy from ``one`` to ``other`` plus half of that back, the mean over the batch.

    Args:
        one: logits (n, classes).
        other: logits (n, classes); the order of the two is nothing to the result.
    """
    return 0.5 * cross_entropy_between(one, other) + 0.5 * cross_entropy_between(other, one)
