"""One step of ETA, EATA and RDumb, one image at a time; nothing of driftlaw is used."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tests.reference.components import (
    GradientHistory,
    cosine,
    entropy,
    make_optimizer,
    minimize,
    softmax,
    with_batch_statistics,
)


class ReferenceEata:
    """ETA with the Fisher penalty of EATA and the periodic reset of RDumb, each of which may be off.

    The settings have the names of the ``Config`` classes in `driftlaw.methods.eata`.

    Args:
        model: the source model.
        training_batches: images of the training data, for the Fisher information.
        settings: settings.

    Attributes:
        gradients: the gradients of all steps since the last reset.
        kept: indices of the images that were kept in the last step.
    """

    def __init__(self, model: nn.Module, training_batches: Sequence[Tensor] = (), **settings) -> None:
        self.settings = {
            "learning_rate": 1e-3,
            "optimizer": "adam",
            "entropy_threshold": 0.4,
            "similarity_threshold": 0.4,
            "probability_momentum": 0.9,
            "fisher_weight": 1.0,
            "reset_every": math.inf,
        } | settings
        self.model = with_batch_statistics(model)
        norms = [module for module in self.model.modules() if isinstance(module, nn.BatchNorm2d)]
        self.trainable = [value for norm in norms for value in (norm.weight, norm.bias)]
        self.source = [value.detach().clone() for value in self.trainable]
        self.steps = 0
        self._start()
        self.fisher = [torch.zeros_like(value) for value in self.source]
        for images in training_batches:
            logits = self.model(images)
            nll = -sum(softmax(row)[int(row.argmax())].log() for row in logits) / len(images)
            for total, gradient in zip(self.fisher, torch.autograd.grad(nll, self.trainable), strict=True):
                total += gradient**2 / len(training_batches)

    def _start(self) -> None:
        for value, source in zip(self.trainable, self.source, strict=True):
            value.data = source.clone()
        self.optimizer = make_optimizer(self.settings["optimizer"], self.trainable, self.settings["learning_rate"])
        self.mean_probabilities: Tensor | None = None
        self.gradients: GradientHistory = {}
        self.kept: list[int] = []

    def step(self, images: Tensor) -> Tensor:
        if self.steps == self.settings["reset_every"]:
            self._start()
            self.steps = 0
        self.steps += 1
        logits = self.model(images)
        margin = self.settings["entropy_threshold"] * math.log(logits.shape[1])
        probabilities = [softmax(row).detach() for row in logits]
        entropies = [entropy(row[None]) for row in logits]
        self.kept = [
            index
            for index, p in enumerate(probabilities)
            if entropies[index] < margin
            and (
                self.mean_probabilities is None
                or abs(cosine(self.mean_probabilities, p)) < self.settings["similarity_threshold"]
            )
        ]
        if not self.kept:
            return logits.detach()
        mean = sum(probabilities[index] for index in self.kept) / len(self.kept)
        momentum = self.settings["probability_momentum"]
        if self.mean_probabilities is None:
            self.mean_probabilities = mean
        else:
            self.mean_probabilities = momentum * self.mean_probabilities + (1 - momentum) * mean
        loss = sum(math.exp(margin - float(entropies[i].detach())) * entropies[i] for i in self.kept) / len(self.kept)
        for fisher, value, source in zip(self.fisher, self.trainable, self.source, strict=True):
            loss = loss + self.settings["fisher_weight"] * (fisher * (value - source) ** 2).sum()
        minimize(loss, self.optimizer, self.gradients)
        return logits.detach()
