"""Monitors of the guard: what two predictions of the same images say about an adapter, without labels.

Logits are (n, K), or (n, K, h, w), where every pixel counts as an image. Comparisons use every n-th pixel of these, see
``driftlaw.dense.every_nth_pixel``.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from driftlaw.dense import every_nth_pixel, pixels

SPREAD_WEIGHT = 0.3  # of the second term of the skew; chosen on the held-out corruptions


class Check(NamedTuple):
    """Result of one check.

    Attributes:
        skew: how much batch statistics harm the source model, see ``skew``; 0 without batch statistics.
        agreement: share of the reference model's confident predictions that the adapter shares.
        classes: effective number of classes that the adapter predicts, divided by that of the reference model.
        distance: largest ‖θ − θ_source‖ / ‖θ_source‖ of an adapted weight θ.
    """

    skew: float
    agreement: float
    classes: float
    distance: float


def mean_entropy(logits: Tensor) -> Tensor:
    """Return the mean of −Σ p·log p in nats, with p = softmax(logits) over ``dim=1``; 0·log 0 is 0.

    >>> round(float(mean_entropy(torch.zeros(3, 2))), 4)  # log 2
    0.6931
    """
    dtype = torch.promote_types(logits.dtype, torch.float32)
    entropies: Tensor = torch.special.entr(pixels(logits).softmax(dim=1, dtype=dtype)).sum(dim=1)
    return entropies.mean()


def log_effective_classes(logits: Tensor) -> Tensor:
    """Return the entropy of the mean prediction: the logarithm of the number of classes that are predicted."""
    entropies: Tensor = torch.special.entr(pixels(logits).softmax(1).mean(0))
    return entropies.sum()


def skew(stored: Tensor, batch: Tensor) -> Tensor:
    """Return how much batch statistics harm predictions: positive if the images have too few classes for them.

    Normalisation with the statistics of images of few classes removes what these have in common. Predictions are then
    less certain than with stored statistics, and spread over more classes. With the mean entropy H and the entropy G of
    the mean prediction, the skew is

        (H_batch − H_stored) + 0.3·(G_batch − G_stored),    times log 10 / log K for K classes.

    Args:
        stored: logits of the source model with its stored statistics, (n, K).
        batch: logits of the source model for the same images with batch statistics, (n, K).
    """
    stored, batch = every_nth_pixel(stored), every_nth_pixel(batch)
    certainty = mean_entropy(batch) - mean_entropy(stored)
    spread = log_effective_classes(batch) - log_effective_classes(stored)
    return (certainty + SPREAD_WEIGHT * spread) * (math.log(10) / math.log(stored.shape[1]))


def confident_agreement(logits: Tensor, reference: Tensor) -> Tensor:
    """Return the share of equal predictions among the half of the images of which the reference is most certain."""
    logits, reference = pixels(logits), pixels(reference)
    half = reference.softmax(1).amax(1).argsort(descending=True)[: -(-len(reference) // 2)]
    return (logits.argmax(1) == reference.argmax(1))[half].float().mean()


def compare(logits: Tensor, stored: Tensor, batch: Tensor | None, distances: Tensor) -> Check:
    """Return the result of a check; reads values back to the host once.

    Args:
        logits: of the adapter, for a sample of recent images.
        stored: of the source model with its stored statistics.
        batch: of the source model with batch statistics, which is then the reference; None: ``stored`` is.
        distances: of the adapted weights from the source model; may be empty.
    """
    logits, reference = every_nth_pixel(logits), every_nth_pixel(stored if batch is None else batch)
    values = [
        logits.new_zeros(()) if batch is None else skew(stored, batch),
        confident_agreement(logits, reference),
        (log_effective_classes(logits) - log_effective_classes(reference)).exp(),
        distances.nan_to_num().amax() if len(distances) else logits.new_zeros(()),
    ]
    return Check(*torch.stack([value.double() for value in values]).tolist())
