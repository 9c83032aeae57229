"""One step of ROID and of CMF, one image and one class at a time; nothing of driftlaw is used."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from tests.reference.components import (
    GradientHistory,
    cosine,
    entropy,
    make_optimizer,
    minimize,
    softmax,
    symmetric_cross_entropy,
    with_batch_statistics,
)


class ReferenceRoid:
    """A model, its source parameters and the running mean of predicted probabilities.

    The settings have the names of `driftlaw.methods.roid.Roid.Config`. The test passes in the augmented images.

    Attributes:
        gradients: the gradients of all steps.
        kept: indices of the images that were kept in the last step.
    """

    def __init__(self, model: nn.Module, **settings) -> None:
        self.settings = {
            "learning_rate": 1e-3,
            "optimizer": "adam",
            "weighting": True,
            "consistency": True,
            "prior_correction": True,
            "temperature": 1 / 3,
            "probability_momentum": 0.9,
            "clip": 0.99,
            "batch_size": None,
            "source_pull": 0.01,
        } | settings
        self.model = with_batch_statistics(model)
        norms = [module for module in self.model.modules() if isinstance(module, nn.BatchNorm2d)]
        self.trainable = [value for norm in norms for value in (norm.weight, norm.bias)]
        self.source = [value.detach().clone() for value in self.trainable]
        self.optimizer = make_optimizer(self.settings["optimizer"], self.trainable, self.settings["learning_rate"])
        self.mean_probabilities: Tensor | None = None
        self.gradients: GradientHistory = {}
        self.kept: list[int] = []

    def step(self, images: Tensor, augmented: Tensor) -> Tensor:
        logits = self.model(images)
        count, classes = logits.shape
        if self.mean_probabilities is None:
            self.mean_probabilities = torch.full((classes,), 1 / classes, dtype=images.dtype)
        probabilities = [softmax(row).detach() for row in logits]
        weights = self._weights(probabilities) if self.settings["weighting"] else [1.0] * count
        self.kept = [index for index in range(count) if weights[index] > 0]
        mean = sum(probabilities) / count
        momentum = self.settings["probability_momentum"]
        self.mean_probabilities = momentum * self.mean_probabilities + (1 - momentum) * mean
        total = torch.zeros((), dtype=images.dtype)
        for index in self.kept:
            total = total + weights[index] * self._soft_likelihood_ratio(logits[index])
        if self.settings["consistency"]:
            augmented_logits = self.model(augmented[self.kept])
            for row, index in zip(augmented_logits, self.kept, strict=True):
                total = total + weights[index] * symmetric_cross_entropy(logits[index : index + 1], row[None])
        minimize(total / (self.settings["batch_size"] or count), self.optimizer, self.gradients)
        self._after_step()
        if not self.settings["prior_correction"]:
            return logits.detach()
        smoothing = max(1 / count, 1 / classes) / float(mean.max())
        return logits.detach() * classes * (mean + smoothing) / (1 + smoothing * classes)

    def _weights(self, probabilities: list[Tensor]) -> list[float]:
        diversity = [1 - float(cosine(self.mean_probabilities, p)) for p in probabilities]
        certainty = [-float(entropy(p.log()[None])) for p in probabilities]
        diversity, certainty = _scaled(diversity), _scaled(certainty)
        mean = math.fsum(diversity) / len(diversity)
        return [
            math.exp(d * c / self.settings["temperature"]) if d >= mean else 0.0
            for d, c in zip(diversity, certainty, strict=True)
        ]

    def _soft_likelihood_ratio(self, logits: Tensor) -> Tensor:
        total = torch.zeros((), dtype=logits.dtype)
        for p in softmax(logits):
            if p > self.settings["clip"]:
                p = torch.tensor(self.settings["clip"], dtype=logits.dtype)
            total = total - p * (p / (1 - p) + 1e-5).log()
        return total

    def _after_step(self) -> None:
        pull = self.settings["source_pull"]
        for value, source in zip(self.trainable, self.source, strict=True):
            value.data = (1 - pull) * value.data + pull * source


class ReferenceCmf(ReferenceRoid):
    """ROID with a hidden copy of the parameters and its variance in place of the source model.

    Attributes:
        hidden: the hidden copy.
        beta: weight of the hidden copy in the last step.
    """

    def __init__(self, model: nn.Module, **settings) -> None:
        super().__init__(model, **{"alpha": 0.99, "process_noise": 0.005, "least_beta": 0.89} | settings)
        self.hidden = [value.clone() for value in self.source]
        self.variance = 0.0
        self.beta = 1.0

    def _after_step(self) -> None:
        alpha, pull = self.settings["alpha"], self.settings["source_pull"]
        q = self.settings["process_noise"] * sum(value.numel() for value in self.source) / 38400
        predicted_variance = alpha**2 * self.variance + q
        self.beta = max((1 - q) / (predicted_variance + (1 - q)), self.settings["least_beta"])
        if self.beta > 0.9999:
            self.beta = 1.0
        self.variance = self.beta * predicted_variance
        for index, value in enumerate(self.trainable):
            predicted = alpha * self.hidden[index] + (1 - alpha) * self.source[index]
            self.hidden[index] = self.beta * predicted + (1 - self.beta) * value.data
            value.data = (1 - pull) * value.data + pull * self.hidden[index]


def _scaled(values: list[float]) -> list[float]:
    low, high = min(values), max(values)
    return [(value - low) / (high - low) if high > low else 0.0 for value in values]
