"""One SAR step, one image at a time; nothing of driftlaw is used."""

from __future__ import annotations

import math

from torch import Tensor, nn

from tests.reference.components import entropy, with_batch_statistics


class ReferenceSar:
    """A model whose normalization layers learn, momentum buffers, and the moving average of the loss.

    Attributes:
        loss_average: None before the first update and after a reset.
        kept: number of images that were reliable twice in the last step.
    """

    def __init__(self, model: nn.Module, **settings) -> None:
        self.settings = {
            "learning_rate": 1e-3,
            "radius": 0.05,
            "entropy_threshold": 0.4,
            "loss_momentum": 0.9,
            "reset_threshold": 0.2 / math.log(1000),
        } | settings
        self.model = with_batch_statistics(model)
        self.learnt = [
            value
            for module in self.model.modules()
            if isinstance(module, nn.BatchNorm2d)
            for value in module.parameters(recurse=False)
        ]
        self.source = [value.data.clone() for value in self.learnt]
        self.momentum: list[Tensor | None] = [None] * len(self.learnt)
        self.loss_average: float | None = None
        self.kept = 0

    def step(self, images: Tensor) -> tuple[Tensor, bool]:
        """Predict and update; return the logits, and whether the model was reset."""
        logits = self.model(images)
        limit = self.settings["entropy_threshold"] * math.log(logits.shape[1])
        entropies = [entropy(row[None]) for row in logits]
        reliable = [index for index, value in enumerate(entropies) if value < limit]
        self.kept = 0
        if not reliable:
            return logits.detach(), False
        gradients = self._gradients(sum(entropies[index] for index in reliable) / len(reliable))
        length = math.sqrt(sum(float((gradient * gradient).sum()) for gradient in gradients))
        originals = [value.data.clone() for value in self.learnt]
        for value, gradient in zip(self.learnt, gradients, strict=True):
            value.data = value.data + self.settings["radius"] * gradient / (length + 1e-12)
        entropies = [entropy(row[None]) for row in self.model(images)]
        reliable = [index for index in reliable if entropies[index] < limit]
        if reliable:
            loss = sum(entropies[index] for index in reliable) / len(reliable)
            gradients = self._gradients(loss)
        for value, original in zip(self.learnt, originals, strict=True):
            value.data = original
        if not reliable:
            return logits.detach(), False
        self.kept = len(reliable)
        for index, (value, gradient) in enumerate(zip(self.learnt, gradients, strict=True)):
            before = self.momentum[index]
            self.momentum[index] = gradient if before is None else 0.9 * before + gradient
            value.data = value.data - self.settings["learning_rate"] * self.momentum[index]
        return logits.detach(), self._reset(loss.item(), math.log(logits.shape[1]))

    def _reset(self, loss: float, log_classes: float) -> bool:
        weight = self.settings["loss_momentum"]
        self.loss_average = loss if self.loss_average is None else weight * self.loss_average + (1 - weight) * loss
        if self.loss_average >= self.settings["reset_threshold"] * log_classes:
            return False
        for value, source in zip(self.learnt, self.source, strict=True):
            value.data = source.clone()
        self.loss_average = None
        return True

    def _gradients(self, loss: Tensor) -> list[Tensor]:
        self.model.zero_grad()
        loss.backward()
        gradients = [value.grad.clone() for value in self.learnt]
        self.model.zero_grad()
        return gradients
