"""One GTTA-MIX step written out, an image at a time; nothing of driftlaw is used."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from tests.reference.cotta import labelled_cross_entropy, optimizer_of, probabilities, with_batch_statistics


class ReferenceGtta:
    """A network and the running mean confidence; the source batch is handed to each step."""

    def __init__(self, model: nn.Module, **settings) -> None:
        self.settings = {
            "learning_rate": 1e-5,
            "optimizer": "adam",
            "test_share": 1 / 3,
            "confidence_momentum": 0.9,
            "first_confidence": 0.9,
        } | settings
        self.model = with_batch_statistics(model)
        self.optimizer = optimizer_of(self.settings, self.model.parameters())
        self.confidence = self.settings["first_confidence"]

    def step(self, images: Tensor, originals: Tensor, labels: list[int]) -> tuple[Tensor, int]:
        """Return the answer and how many pseudo-labels were kept."""
        with torch.no_grad():
            predicted = [probabilities(row) for row in self.model(images)]
            of_source = [probabilities(row) for row in self.model(originals)]
        sure = [float(row.max()) for row in predicted]
        momentum = self.settings["confidence_momentum"]
        self.confidence = momentum * self.confidence + (1 - momentum) * sum(sure) / len(sure)
        kept = [number for number, value in enumerate(sure) if value >= math.sqrt(self.confidence)]
        mixed = []
        for original, own in zip(originals, of_source, strict=True):
            likeness = [float((own * other).sum()) for other in predicted]
            partner = images[likeness.index(max(likeness))]
            share = self.settings["test_share"]
            mixed.append(share * partner + (1 - share) * original)
        self._descend(labelled_cross_entropy(self.model(torch.stack(mixed)), labels))
        answer = self.model(images)
        if kept:
            pseudo_labels = [int(predicted[number].argmax()) for number in kept]
            self._descend(labelled_cross_entropy(torch.stack([answer[number] for number in kept]), pseudo_labels))
        return answer.detach(), len(kept)

    def _descend(self, loss: Tensor) -> None:
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
