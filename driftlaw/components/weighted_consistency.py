"""The loss that ROID and CMF share: weighted soft likelihood ratio and consistency under augmentation."""

from typing import Any, Literal

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn

from driftlaw.components.augment import AugmentParams, augment
from driftlaw.components.losses import soft_likelihood_ratio, symmetric_cross_entropy
from driftlaw.components.sample_weights import diversity_certainty_weights, update_mean_probabilities
from driftlaw.settings import Settings


class WeightedConsistencySettings(Settings):
    """Settings of the loss and the optimizer; the defaults are those for CIFAR-10-C."""

    learning_rate: PositiveFloat = 1e-3
    """Step size: 1e-3 with Adam for CIFAR, 2.5e-4 with SGD for ImageNet."""
    optimizer: Literal["adam", "sgd"] = "adam"
    """``adam`` (betas 0.9 and 0.999) or, on ImageNet-C, ``sgd`` (momentum 0.9, Nesterov)."""
    weighting: bool = True
    """Weigh images by certainty and diversity, and drop those of low diversity. If False, all weights are 1."""
    consistency: bool = True
    """Add the symmetric cross-entropy with the predictions for the augmented images."""
    prior_correction: bool = True
    """Multiply the returned logits by the smoothed class distribution of the batch."""
    temperature: PositiveFloat = 1 / 3
    """T of the weights exp(d·c/T)."""
    probability_momentum: float = Field(default=0.9, ge=0.0, le=1.0)
    """Weight of the old value in the running mean of predicted probabilities."""
    clip: float = Field(default=0.99, gt=0.0, lt=1.0)
    """Upper limit of a probability in the soft likelihood ratio; above it there is no gradient."""
    batch_size: PositiveInt | None = None
    """The sum of the weighted losses is divided by this number; None: by the number of images in the batch. The
    released code divides a smaller last batch by the full batch size, which matters for SGD: 64 on ImageNet-C."""


def weighted_consistency_loss(
    model: nn.Module, images: Tensor, params: AugmentParams | None, mean_probabilities: Tensor, settings: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Return logits, loss and the share of kept images, and update the running mean of probabilities.

    L = Σ w·(SLR(y) + SCE(y, ŷ)) / batch size, where ŷ are the logits of the augmented images. The second pass runs on
    the kept images alone, with batch statistics of its own. Its size is read back to the host.

    Args:
        model: the network.
        images: (n, c, h, w).
        params: parameters of the augmentation; None: no consistency.
        mean_probabilities: (classes,), updated in place after the weights are computed.
        settings: a `WeightedConsistencySettings`.
    """
    logits = model(images)
    weights = torch.ones_like(logits[:, 0])
    if settings.weighting:
        weights = diversity_certainty_weights(logits, mean_probabilities, settings.temperature).to(logits.dtype)
    kept = weights > 0
    total = (weights * soft_likelihood_ratio(logits, settings.clip, reduction="none")).sum()
    if params is not None:
        augmented_logits = model(augment(images[kept], params, sharp=True))
        total = total + (weights[kept] * symmetric_cross_entropy(logits[kept], augmented_logits, "none")).sum()
    update_mean_probabilities(mean_probabilities, logits, settings.probability_momentum)
    return logits, total / (settings.batch_size or len(images)), kept.to(logits.dtype).mean().detach()
