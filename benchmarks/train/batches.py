"""Training batches: shuffled and augmented on the device, for several steps at once on a GPU."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from benchmarks.train.augment import crop_and_flip
from benchmarks.train.augmix import Chains, augmix
from benchmarks.train.recipe import Recipe

CHUNK_VALUES = 8192 * 3 * 32 * 32
"""Image values that a GPU augments at once. AugMix launches about 800 small kernels for any number of images. With
8,192 CIFAR images, the views of 32 steps, that is 26 launches per step and half a gigabyte of memory."""


class AugmentedBatches:
    """Batches of one epoch in random order; every iteration draws a new order and new augmentations.

    Args:
        images: uint8 (n, c, h, w), on the generator's device.
        labels: (n,), on the same device.
        recipe: batch size and augmentation.
        generator: source of randomness.
    """

    def __init__(self, images: Tensor, labels: Tensor, recipe: Recipe, generator: torch.Generator) -> None:
        self.images, self.labels, self.recipe, self.generator = images, labels, recipe, generator
        self.steps_per_chunk = 1
        if images.device.type == "cuda":  # on a CPU launches are cheap, and the images of one step fit the cache
            self.steps_per_chunk = steps_per_chunk(recipe, images[0].numel())

    def __len__(self) -> int:
        return math.ceil(len(self.images) / self.recipe.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(len(self.images), generator=self.generator, device=self.images.device)
        steps = torch.split(order, self.recipe.batch_size)
        for first in range(0, len(steps), self.steps_per_chunk):
            chunk = steps[first : first + self.steps_per_chunk]
            yield from zip(self.views(chunk), (self.labels[indices] for indices in chunk), strict=True)

    def views(self, chunk: Sequence[Tensor]) -> Iterator[Tensor]:
        """Yield the images of each step: cropped and flipped, with AugMix followed by two mixtures of the same crop.

        Args:
            chunk: indices of the images of each step.
        """
        sizes = [len(indices) for indices in chunk]
        images = self.images[torch.cat(tuple(chunk))]
        images = crop_and_flip(images, self.generator, padding=self.recipe.crop_padding, flip=self.recipe.flip)
        if self.recipe.augmentation == "crop_flip":
            yield from torch.split(images, sizes)
            return
        twice = images.repeat(2, 1, 1, 1)
        first, second = torch.split(augmix(twice, Chains.from_generator(len(twice), self.generator)), len(images))
        clean = images.contiguous().to(torch.float32).div_(255)
        for views in zip(*(torch.split(each, sizes) for each in (clean, first, second)), strict=True):
            yield torch.cat(views)


def steps_per_chunk(recipe: Recipe, values_per_image: int) -> int:
    """Return for how many steps a GPU augments images at once, given the number of values of an image.

    >>> steps_per_chunk(Recipe(augmentation="augmix"), 3 * 32 * 32)
    32
    """
    mixtures = 2 if recipe.augmentation == "augmix" else 1
    return max(1, CHUNK_VALUES // (mixtures * recipe.batch_size * values_per_image))
