"""What a training run is made of: every number of it, with the defaults of the benchmark's source networks."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from driftlaw.settings import Settings


class Recipe(Settings):
    """SGD with Nesterov momentum, random crops and flips, a rate that rises for an epoch and falls along a cosine."""

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
    precision: Literal["auto", "bf16", "float32"] = "auto"
    """bf16 where the device can; float32 on a CPU and wherever bf16 does not run."""
    compiled: Literal["auto", "yes", "no"] = "auto"
    """Whether torch.compile is used; ``auto`` does on a GPU."""

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
