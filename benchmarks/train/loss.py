"""Training loss: cross-entropy, plus the Jensen–Shannon divergence between augmented views."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def training_loss(model: nn.Module, images: Tensor, labels: Tensor, consistency_weight: float) -> Tensor:
    """Return the loss of a batch. It includes the conversion from uint8, so that all of it compiles to one graph.

    Args:
        model: maps images (n, c, h, w) in [0, 1] to logits.
        images: (views · n, c, h, w), all images of the first view, then of the second, …; uint8 or float in [0, 1].
        labels: (n,).
        consistency_weight: factor of the Jensen–Shannon divergence between the predictions of the views.
    """
    if images.dtype == torch.uint8:
        images = images.to(torch.float32).div(255)
    logits = model(images.contiguous(memory_format=torch.channels_last))
    if len(images) == len(labels):
        return F.cross_entropy(logits, labels)
    views = torch.split(logits, len(labels))
    return F.cross_entropy(views[0], labels) + consistency_weight * jensen_shannon(views)


def jensen_shannon(views: tuple[Tensor, ...]) -> Tensor:
    """Return the Jensen–Shannon divergence of the predictions of several views, averaged over the images.

    JS(p₁, …, pₖ) = (1/k) Σᵢ KL(pᵢ ‖ m) with m = (1/k) Σᵢ pᵢ.

    Args:
        views: logits (n, classes) of each view.
    """
    log_probabilities = torch.stack(views).float().log_softmax(-1)
    # AugMix's code clamps the mixture here, so that a probability of 0 has a finite gradient.
    log_mixture = log_probabilities.exp().mean(0).clamp(1e-7, 1).log()
    return (log_probabilities.exp() * (log_probabilities - log_mixture)).sum(-1).mean()
