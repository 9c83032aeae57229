"""Losses without labels: plain functions of logits (n, classes), each the mean over the batch."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def entropy(logits: Tensor) -> Tensor:
    """Return the mean of −Σ p·log p with p = softmax(logits)."""
    return cross_entropy_between(logits, logits)


def cross_entropy_between(target: Tensor, answer: Tensor) -> Tensor:
    """Return the mean of −Σ softmax(target)·log softmax(answer); gradients flow through both unless detached."""
    return -(target.softmax(dim=1) * answer.log_softmax(dim=1)).sum(dim=1).mean()


def own_label_likelihood(logits: Tensor) -> Tensor:
    """Return the mean negative log-likelihood of the logits at their own arg-max labels."""
    return F.cross_entropy(logits, logits.detach().argmax(dim=1))
