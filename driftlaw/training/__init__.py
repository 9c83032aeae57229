"""How a source network is made: its augmentations, its loop, its record."""

from driftlaw.training.loop import Training, train
from driftlaw.training.recipe import Recipe

__all__ = ["Recipe", "Training", "train"]
