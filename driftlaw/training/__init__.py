"""Training of source models: recipe, augmentation, and a resumable loop that writes weights and a record."""

from driftlaw.training.loop import Training, train
from driftlaw.training.recipe import Recipe

__all__ = ["Recipe", "Training", "train"]
