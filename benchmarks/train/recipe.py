"""Training recipe: all hyper-parameters, with the defaults of the benchmark's source models."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from driftlaw.settings import Settings


class Recipe(Settings):
    """SGD with Nesterov momentum, random crops and flips, and a cosine schedule with linear warm-up.

    With ``augmentation='augmix'`` every step predicts three views of an image, the image itself and two AugMix
    versions, and the loss penalises differences between the predictions.
    """

    epochs: PositiveInt = 100
    """Passes over the training images."""
    batch_size: PositiveInt = 128
    """Images per step."""
    learning_rate: PositiveFloat = 0.1
    """Highest learning rate, reached after the warm-up."""
    warmup_epochs: NonNegativeFloat = 1.0
    """Epochs in which the learning rate rises linearly from 0."""
    momentum: NonNegativeFloat = 0.9
    """Nesterov momentum."""
    weight_decay: NonNegativeFloat = 5e-4
    """Weight decay of all parameters, including normalisation layers: LAW's steps are relative to the weights."""
    crop_padding: NonNegativeInt = 4
    """Black pixels around an image before a random crop of its original size."""
    flip: bool = True
    """Mirror each image with probability 1/2."""
    augmentation: Literal["crop_flip", "augmix"] = "crop_flip"
    """Crops and flips only, or AugMix after them."""
    consistency_weight: NonNegativeFloat = 12.0
    """Factor of the Jensen–Shannon divergence between the three predictions (AugMix, Section 3)."""
    normalise: Literal["none", "half"] = "none"
    """Normalisation of the input: none, or (x − 0.5)/0.5. It becomes part of the model and of its metadata."""
    precision: Literal["auto", "bf16", "float32"] = "auto"
    """``bf16`` if the device supports it, else float32. ``auto`` is bf16 on a GPU and float32 on a CPU."""
    compiled: Literal["auto", "yes", "no"] = "auto"
    """Use torch.compile; ``auto`` does so on a GPU."""
    capture: Literal["auto", "on", "off"] = "off"
    """Replay a step on a GPU as one CUDA graph. Small models gain from it, because launching their kernels takes
    longer than running them. If capture fails, ``auto`` continues without it and ``on`` raises an error."""

    def normalisation(self) -> dict[str, list[float]] | None:
        """Return ``mean`` and ``std`` for ``build_model``, None for no normalisation."""
        return {"mean": [0.5] * 3, "std": [0.5] * 3} if self.normalise == "half" else None

    def rate_at(self, epoch: float) -> float:
        """Return the learning rate after ``epoch`` epochs, which may be a fraction.

        >>> recipe = Recipe(epochs=10)
        >>> [round(recipe.rate_at(epoch), 3) for epoch in (0, 1, 5.5, 10)]
        [0.0, 0.1, 0.05, 0.0]
        """
        if epoch < self.warmup_epochs:
            return self.learning_rate * epoch / self.warmup_epochs
        progress = (epoch - self.warmup_epochs) / max(self.epochs - self.warmup_epochs, 1e-9)
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))
