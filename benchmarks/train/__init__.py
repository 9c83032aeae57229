"""Training of source models: recipe, augmentation, and a resumable loop that writes weights and a record."""

from benchmarks.train.loop import Training, train
from benchmarks.train.recipe import Recipe

__all__ = ["Recipe", "Training", "train"]
