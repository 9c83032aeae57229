"""One DeYO step, one image at a time; nothing of driftlaw is used."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from tests.reference.components import (
    GradientHistory,
    entropy,
    minimize,
    softmax,
    with_batch_statistics,
)


def shuffled(image: Tensor, order: list[int], patches: int) -> Tensor:
    """Return an image (c, h, w) whose patch k is patch order[k] of the input; its sides are multiples of patches."""
    result = torch.zeros_like(image)
    height, width = image.shape[1] // patches, image.shape[2] // patches
    for target, source in enumerate(order):
        rows, columns = target // patches * height, target % patches * width
        source_rows, source_columns = source // patches * height, source % patches * width
        result[:, rows : rows + height, columns : columns + width] = image[
            :, source_rows : source_rows + height, source_columns : source_columns + width
        ]
    return result


class ReferenceDeyo:
    """A model whose normalization layers learn. The test passes in the permutations.

    Attributes:
        gradients: the gradients of all steps.
        kept: number of images that passed the first and the second filter in the last step.
    """

    def __init__(self, model: nn.Module, **settings) -> None:
        self.settings = {
            "learning_rate": 1e-3,
            "optimizer": "adam",
            "entropy_threshold": 0.5,
            "entropy_margin": 0.4,
            "plpd_threshold": 0.2,
            "patches": 4,
        } | settings
        self.model = with_batch_statistics(model).requires_grad_(False)
        learnt = [
            value.requires_grad_(True)
            for module in self.model.modules()
            if isinstance(module, nn.BatchNorm2d)
            for value in module.parameters(recurse=False)
        ]
        rate = self.settings["learning_rate"]
        if self.settings["optimizer"] == "adam":
            self.optimizer = torch.optim.Adam(learnt, lr=rate)
        else:
            self.optimizer = torch.optim.SGD(learnt, lr=rate, momentum=0.9)
        self.gradients: GradientHistory = {}
        self.kept = (0, 0)

    def step(self, images: Tensor, order: Tensor) -> Tensor:
        logits = self.model(images)
        log_classes = math.log(logits.shape[1])
        entropies = [entropy(row[None]) for row in logits]
        first = [i for i, value in enumerate(entropies) if value < self.settings["entropy_threshold"] * log_classes]
        self.kept = (len(first), 0)
        if not first:
            return logits.detach()
        with torch.no_grad():
            patches = self.settings["patches"]
            other = self.model(torch.stack([shuffled(images[i], order[i].tolist(), patches) for i in first]))
        terms = []
        for position, index in enumerate(first):
            label = int(logits[index].argmax())
            difference = float(softmax(logits[index].detach())[label] - softmax(other[position])[label])
            if difference > self.settings["plpd_threshold"]:
                margin = self.settings["entropy_margin"] * log_classes
                factor = math.exp(margin - float(entropies[index])) + math.exp(difference)
                terms.append(factor * entropies[index])
        self.kept = (len(first), len(terms))
        if terms:
            minimize(sum(terms) / len(terms), self.optimizer, self.gradients)
        return logits.detach()
