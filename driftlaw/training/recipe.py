"""What a training run is made of: every number of it, with the defaults of the benchmark's source networks."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from driftlaw.settings import Settings


class Recipe(Settings):
    """SGD with Nesterov momentum, random crops and flips, a rate that rises for an epoch and falls along a cosine.

    With ``augmentation=augmix`` an image is answered three times a step, as it is and mixed twice, and the answers
    are to agree.
    """

    epochs: PositiveInt = 100
    """Passes over the training images."""
    batch_size: PositiveInt = 128
    """Images a step."""
    learning_rate: PositiveFloat = 0.1
    """The highest rate, reached after the warm-up."""
    warmup_epochs: NonNegativeFloat = 1.0
    """How long the rate rises, linearly from 0."""
    momentum: NonNegativeFloat = 0.9
    """Nesterov momentum."""
    weight_decay: NonNegativeFloat = 5e-4
    """On all parameters, those of norm layers included: LAW's step is relative to the size of the weights."""
    crop_padding: NonNegativeInt = 4
    """Pixels of black around an image before a random crop of its own size."""
    flip: bool = True
    """Whether half of the images are mirrored."""
    augmentation: Literal["crop_flip", "augmix"] = "crop_flip"
    """What happens to images besides: nothing, or AugMix after the crop and the flip."""
    consistency_weight: NonNegativeFloat = 12.0
    """AugMix's weight of the Jensen–Shannon divergence between the three answers (its Section 3)."""
    normalise: Literal["none", "half"] = "none"
    """Of the network's input: none, or (x − 0.5)/0.5; it becomes part of the network and of its weights' metadata."""
    precision: Literal["auto", "bf16", "float32"] = "auto"
    """bf16 where the device can; float32 on a CPU and wherever bf16 does not run."""
    compiled: Literal["auto", "yes", "no"] = "auto"
    """Whether torch.compile is used; ``auto`` does on a GPU."""
    capture: Literal["auto", "on", "off"] = "off"
    """Whether a step on a GPU is replayed as one CUDA graph, which a small network gains by: the host launches its
    kernels more slowly than the GPU runs them. ``auto`` goes on as written where a step cannot be captured, ``on``
    stops."""

    def normalisation(self) -> dict[str, list[float]] | None:
        """Return ``mean`` and ``std`` of the input as ``build_model`` takes them."""
        return {"mean": [0.5] * 3, "std": [0.5] * 3} if self.normalise == "half" else None

    def rate_at(self, epoch: float) -> float:
        """Return the learning rate after ``epoch`` epochs, a fraction counted in.

        >>> recipe = Recipe(epochs=10)
        >>> [round(recipe.rate_at(epoch), 3) for epoch in (0, 1, 5.5, 10)]
        [0.0, 0.1, 0.05, 0.0]
        """
        if epoch < self.warmup_epochs:
            return self.learning_rate * epoch / self.warmup_epochs
        done = (epoch - self.warmup_epochs) / max(self.epochs - self.warmup_epochs, 1e-9)
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
