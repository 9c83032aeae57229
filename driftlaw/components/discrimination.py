"""Telling images apart without labels: InfoNCE against remembered keys, and answers spread over all classes."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def info_nce(query: Tensor, key: Tensor, negatives: Tensor, counts: Tensor, temperature: float) -> Tensor:
    """Return the mean of −log(e^{q·k/T} / (e^{q·k/T} + Σ e^{q·m/T})), the sum over the negatives m that count.

    Args:
        query: features (n, d) of one view; gradients flow through them.
        key: features (n, d) of another view of the same images.
        negatives: (n, m), the cosines between the queries and features of other images.
        counts: (n, m), which negatives count for which query.
        temperature: T.
    """
    positive = F.cosine_similarity(query, key, dim=1).unsqueeze(1)
    others = negatives.masked_fill(~counts, -torch.inf)
    logits = torch.cat([positive, others], dim=1) / temperature
    return (logits.logsumexp(dim=1) - logits[:, 0]).mean()


def negative_diversity(logits: Tensor) -> Tensor:
    """Return Σ p̄·log p̄ with p̄ the mean of softmax(logits) over the batch: lowest where all classes are answered.

    >>> round(float(negative_diversity(torch.tensor([[50.0, 0.0], [0.0, 50.0]]))), 4)  # −log 2
    -0.6931
    """
    log_mean = logits.log_softmax(dim=1).logsumexp(dim=0) - math.log(len(logits))
    return (log_mean.exp() * log_mean).sum()
