"""Losses without labels: plain functions of logits (n, classes), each the mean over the batch."""

from __future__ import annotations

import math

import torch  # noqa: F401 (doctest)
import torch.nn.functional as F
from torch import Tensor


def entropy(logits: Tensor) -> Tensor:
    """Return the mean of −Σ p·log p with p = softmax(logits)."""
    return soft_cross_entropy(logits, logits)


def soft_cross_entropy(target: Tensor, answer: Tensor) -> Tensor:
    """Return the mean of −Σ softmax(target)·log softmax(answer); gradients flow through both unless detached."""
    return -(target.softmax(dim=1) * answer.log_softmax(dim=1)).sum(dim=1).mean()


def pseudo_label_nll(logits: Tensor) -> Tensor:
    """Return the mean negative log-likelihood of the logits at their own arg-max labels."""
    return F.cross_entropy(logits, logits.detach().argmax(dim=1))


def symmetric_cross_entropy(one: Tensor, other: Tensor) -> Tensor:
    """Return half the cross-entropy from ``one`` to ``other`` plus half of that back, the mean over the batch.

    Args:
        one: logits (n, classes).
        other: logits (n, classes); the order of the two is nothing to the result.
    """
    return 0.5 * soft_cross_entropy(one, other) + 0.5 * soft_cross_entropy(other, one)


def negative_diversity(logits: Tensor) -> Tensor:
    """Return Σ p̄·log p̄ with p̄ the mean of softmax(logits) over the batch: lowest where all classes are answered.

    >>> round(float(negative_diversity(torch.tensor([[50.0, 0.0], [0.0, 50.0]]))), 4)  # −log 2
    -0.6931
    """
    log_mean = logits.log_softmax(dim=1).logsumexp(dim=0) - math.log(len(logits))
    return (log_mean.exp() * log_mean).sum()
