"""What a training step makes small: cross-entropy, and with several views of an image their disagreement too."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def loss_of(model: nn.Module, images: Tensor, labels: Tensor, consistency_weight: float) -> Tensor:
    """Return the loss of a batch: one function from bytes to the loss, so that it compiles to one graph.

    Args:
        model: takes images (n, c, h, w) in [0, 1].
        images: (views · n, c, h, w), one view of all images after another, uint8 or floats in [0, 1].
        labels: (n,).
        consistency_weight: of the Jensen–Shannon divergence between the answers to the views.
    """
    if images.dtype == torch.uint8:
        images = images.to(torch.float32).div(255)
    logits = model(images.contiguous(memory_format=torch.channels_last))
    if len(images) == len(labels):
        return F.cross_entropy(logits, labels)
    views = logits.split(len(labels))
    return F.cross_entropy(views[0], labels) + consistency_weight * jensen_shannon(views)


def jensen_shannon(views: tuple[Tensor, ...]) -> Tensor:
    """Return the mean over images of the Jensen–Shannon divergence of the answers, logits (n, classes) each."""
    answers = torch.stack(views).float().log_softmax(-1)
    # the published training clamps the mixture here, so that a probability of 0 makes no gradient of infinity
    mixture = answers.exp().mean(0).clamp(1e-7, 1).log()
    return (answers.exp() * (answers - mixture)).sum(-1).mean()
