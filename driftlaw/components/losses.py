"""Losses that need no labels, as functions of logits.

Logits have shape (n, classes) or (n, classes, ...). Every loss reduces over ``dim=1`` and averages over the rest.
"""

import math

import torch  # noqa: F401 (used in doctests)
import torch.nn.functional as F
from torch import Tensor


def entropy(logits: Tensor) -> Tensor:
    """Return the mean of −Σ p·log p with p = softmax(logits).

    >>> round(float(entropy(torch.zeros(3, 2))), 4)  # log 2
    0.6931
    """
    return soft_cross_entropy(logits, logits)


def soft_cross_entropy(target_logits: Tensor, logits: Tensor) -> Tensor:
    """Return the mean of −Σ softmax(target_logits)·log softmax(logits).

    Gradients flow through both arguments; detach ``target_logits`` to treat the target as a constant.
    """
    return -(target_logits.softmax(dim=1) * logits.log_softmax(dim=1)).sum(dim=1).mean()


def symmetric_cross_entropy(first: Tensor, second: Tensor) -> Tensor:
    """Return ½·soft_cross_entropy(first, second) + ½·soft_cross_entropy(second, first)."""
    return 0.5 * soft_cross_entropy(first, second) + 0.5 * soft_cross_entropy(second, first)


def pseudo_label_nll(logits: Tensor) -> Tensor:
    """Return the mean negative log-likelihood of the predicted labels, argmax(logits)."""
    return F.cross_entropy(logits, logits.detach().argmax(dim=1))


def negative_diversity(logits: Tensor) -> Tensor:
    """Return Σ p̄·log p̄, where p̄ is the mean of softmax(logits) over the batch; logits (n, classes).

    The minimum, −log(classes), is reached if all classes are predicted equally often.

    >>> round(float(negative_diversity(torch.tensor([[50.0, 0.0], [0.0, 50.0]]))), 4)  # −log 2
    -0.6931
    """
    log_mean = logits.log_softmax(dim=1).logsumexp(dim=0) - math.log(len(logits))
    return (log_mean.exp() * log_mean).sum()
