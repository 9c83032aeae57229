"""One GTTA-MIX step, one image at a time; nothing of driftlaw is used."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from tests.reference.components import (
    GradientHistory,
    labelled_cross_entropy,
    make_optimizer,
    minimize,
    softmax,
    with_batch_statistics,
)


class ReferenceGtta:
    """A model and the running mean of its confidence. The test passes in the batch of training images.

    Attributes:
        gradients: the gradients of all steps.
    """

    def __init__(self, model: nn.Module, **settings) -> None:
        self.settings = {
            "learning_rate": 1e-5,
            "optimizer": "adam",
            "test_share": 1 / 3,
            "confidence_momentum": 0.9,
            "first_confidence": 0.9,
        } | settings
        self.model = with_batch_statistics(model)
        self.optimizer = make_optimizer(
            self.settings["optimizer"], self.model.parameters(), self.settings["learning_rate"]
        )
        self.confidence = self.settings["first_confidence"]
        self.gradients: GradientHistory = {}

    def step(self, images: Tensor, train_images: Tensor, labels: list[int]) -> tuple[Tensor, int]:
        """Predict and update; return the logits and the number of pseudo-labels that were used."""
        with torch.no_grad():
            predicted = [softmax(row) for row in self.model(images)]
            predicted_train = [softmax(row) for row in self.model(train_images)]
        confidences = [float(row.max()) for row in predicted]
        momentum = self.settings["confidence_momentum"]
        self.confidence = momentum * self.confidence + (1 - momentum) * sum(confidences) / len(confidences)
        kept = [index for index, value in enumerate(confidences) if value >= math.sqrt(self.confidence)]
        mixed = []
        for train_image, train_prediction in zip(train_images, predicted_train, strict=True):
            similarities = [float((train_prediction * prediction).sum()) for prediction in predicted]
            partner = images[similarities.index(max(similarities))]
            share = self.settings["test_share"]
            mixed.append(share * partner + (1 - share) * train_image)
        loss = labelled_cross_entropy(self.model(torch.stack(mixed)), labels)
        minimize(loss, self.optimizer, self.gradients)
        logits = self.model(images)
        if kept:
            pseudo_labels = [int(predicted[index].argmax()) for index in kept]
            loss = labelled_cross_entropy(torch.stack([logits[index] for index in kept]), pseudo_labels)
            minimize(loss, self.optimizer, self.gradients)
        return logits.detach(), len(kept)
