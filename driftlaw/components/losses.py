"""Losses that need no labels, as functions of logits.

Logits have shape (n, classes), or (n, classes, h, w) with a prediction per pixel. Every loss is a mean over images or
pixels; with ``reduction="none"`` it returns one value per image (n,) or pixel (n·h·w,) instead of the mean.
"""

import math
from typing import Literal

import torch  # noqa: F401 (used in doctests)
import torch.nn.functional as F
from torch import Tensor

from driftlaw.dense import log_softmax, pixels, softmax

Reduction = Literal["mean", "none"]


def entropy(logits: Tensor, reduction: Reduction = "mean") -> Tensor:
    """Return the mean of −Σ p·log p with p = softmax(logits).

    >>> round(float(entropy(torch.zeros(3, 2))), 4)  # log 2
    0.6931
    """
    logits = pixels(logits)
    return soft_cross_entropy(logits, logits, reduction)


def soft_cross_entropy(target_logits: Tensor, logits: Tensor, reduction: Reduction = "mean") -> Tensor:
    """Return the mean of −Σ softmax(target_logits)·log softmax(logits).

    Gradients flow through both arguments; detach ``target_logits`` to treat the target as a constant.
    """
    target_logits, logits = pixels(target_logits), pixels(logits)
    losses = -(softmax(target_logits) * log_softmax(logits)).sum(dim=1)
    return losses if reduction == "none" else losses.mean()


def symmetric_cross_entropy(first: Tensor, second: Tensor, reduction: Reduction = "mean") -> Tensor:
    """Return ½·soft_cross_entropy(first, second) + ½·soft_cross_entropy(second, first)."""
    first, second = pixels(first), pixels(second)
    return 0.5 * soft_cross_entropy(first, second, reduction) + 0.5 * soft_cross_entropy(second, first, reduction)


def soft_likelihood_ratio(logits: Tensor, clip: float = 0.99, reduction: Reduction = "mean") -> Tensor:
    """Return the mean of −Σ p·log(p/(1 − p) + 1e-5), with p = softmax(logits) limited to at most ``clip`` (ROID).

    Unlike the entropy it keeps a large gradient for confident predictions, up to probabilities of ``clip``.

    >>> float(soft_likelihood_ratio(torch.zeros(3, 2))) < 1e-4  # p = 1 − p, so that the logarithm is about 0
    True
    """
    p = softmax(pixels(logits)).clamp(max=clip)
    losses = -(p * (p / (1 - p) + 1e-5).log()).sum(dim=1)
    return losses if reduction == "none" else losses.mean()


def pseudo_label_nll(logits: Tensor) -> Tensor:
    """Return the mean negative log-likelihood of the predicted labels, argmax(logits)."""
    logits = pixels(logits)
    return F.nll_loss(log_softmax(logits), logits.detach().argmax(dim=1))


def negative_diversity(logits: Tensor) -> Tensor:
    """Return Σ p̄·log p̄, where p̄ is the mean of softmax(logits) over the batch; logits (n, classes).

    The minimum, −log(classes), is reached if all classes are predicted equally often.

    >>> round(float(negative_diversity(torch.tensor([[50.0, 0.0], [0.0, 50.0]]))), 4)  # −log 2
    -0.6931
    """
    log_mean = logits.log_softmax(dim=1).logsumexp(dim=0) - math.log(len(logits))
    return (log_mean.exp() * log_mean).sum()
