"""One step of LAW+ written from its formulas, one image and one tensor at a time; nothing of driftlaw is used."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from tests.reference.components import (
    GradientHistory,
    cosine,
    cross_entropy,
    entropy,
    labelled_cross_entropy,
    softmax,
    symmetric_cross_entropy,
    with_batch_statistics,
)


class ReferenceLawPlus:
    """A model, its source parameters, the Fisher diagonals and the running mean of predicted probabilities.

    The settings have the names of `driftlaw.methods.law_plus.LawPlus.Config`. The test passes in the augmented images.

    Attributes:
        gradients: the gradient of the last step.
        learning_rates: the learning rate of every tensor in the last step.
    """

    def __init__(self, model: nn.Module, **settings) -> None:
        self.settings = {
            "learning_rate": 0.03,
            "tau": 1.0,
            "adapted_share": 0.67,
            "fisher_decay": 1.0,
            "fisher_every": 10,
            "fisher_settling": 20,
            "weighting": True,
            "temperature": 1 / 3,
            "probability_momentum": 0.9,
            "kept_share": 0.5,
            "loss": "slr",
            "clip": 0.99,
            "consistency_weight": 1.0,
            "symmetric": False,
            "anchor": 0.005,
            "prior_correction": True,
        } | settings
        self.model = with_batch_statistics(model)
        self.trainable: dict[str, nn.Parameter] = {}
        for module_name, module in self.model.named_modules():
            if isinstance(module, (nn.Conv2d, nn.BatchNorm2d)):
                for name, value in module.named_parameters(recurse=False):
                    self.trainable[f"{module_name}.{name}"] = value
        count = math.ceil(self.settings["adapted_share"] * len(self.trainable))
        self.trainable = dict(list(self.trainable.items())[:count])
        self.source = {name: value.detach().clone() for name, value in self.trainable.items()}
        self.scales = {name: max(math.sqrt(float((value * value).mean())), 1e-3) for name, value in self.source.items()}
        self.diagonal = {name: torch.zeros_like(value) for name, value in self.source.items()}
        self.mean_probabilities: Tensor | None = None
        self.steps = 0
        self.gradients: GradientHistory = {}
        self.learning_rates: dict[nn.Parameter, float] = {}

    def step(self, images: Tensor, augmented: Tensor) -> tuple[Tensor, dict[str, float]]:
        """Predict and update; return the logits and the weight of every tensor."""
        settings, logits = self.settings, self.model(images)
        count, classes = logits.shape
        if self.mean_probabilities is None:
            self.mean_probabilities = torch.full((classes,), 1 / classes, dtype=images.dtype)
        since = self.steps - settings["fisher_settling"]
        if since < 0 or since % settings["fisher_every"] == 0:
            nll = labelled_cross_entropy(self.model(images), logits.argmax(1).tolist())
            for name, gradient in self._gradients(nll).items():  # (1)
                self.diagonal[name] = settings["fisher_decay"] * self.diagonal[name] + gradient * gradient
        self.steps += 1
        weights = self._layer_weights()
        probabilities = [softmax(row).detach() for row in logits]
        kept, image_weights = self._image_weights(probabilities)
        total = torch.zeros((), dtype=images.dtype)
        augmented_logits = self.model(augmented[kept]) if settings["consistency_weight"] else None
        for position, index in enumerate(kept):  # (6)
            row = logits[index : index + 1]
            loss = entropy(row) if settings["loss"] == "entropy" else self._soft_likelihood_ratio(row[0])
            if augmented_logits is not None:
                agreement = symmetric_cross_entropy if settings["symmetric"] else cross_entropy
                other = augmented_logits[position : position + 1]
                loss = loss + settings["consistency_weight"] * agreement(row, other)
            total = total + image_weights[index] * loss / count
        mean, momentum = sum(probabilities) / count, settings["probability_momentum"]
        self.mean_probabilities = momentum * self.mean_probabilities + (1 - momentum) * mean  # (5)
        self._update(self._gradients(total), weights)
        if not settings["prior_correction"]:
            return logits.detach(), weights
        smoothing = max(1 / count, 1 / classes) / float(mean.max())
        return logits.detach() * classes * (mean + smoothing) / (1 + smoothing * classes), weights  # (9)

    def _gradients(self, loss: Tensor) -> dict[str, Tensor]:
        found = torch.autograd.grad(loss, list(self.trainable.values()), retain_graph=True)
        return dict(zip(self.trainable, found, strict=True))

    def _layer_weights(self) -> dict[str, float]:
        importance = {name: self.scales[name] * math.sqrt(float(self.diagonal[name].mean())) for name in self.diagonal}
        low, high = min(importance.values()), max(importance.values())
        return {name: ((w - low) / (high - low + 1e-8)) ** self.settings["tau"] for name, w in importance.items()}

    def _image_weights(self, probabilities: list[Tensor]) -> tuple[list[int], list[float]]:
        diversity = _scaled([1 - float(cosine(self.mean_probabilities, p)) for p in probabilities])  # (3)
        certainty = _scaled([-float(entropy(p.log()[None])) for p in probabilities])
        most_diverse = sorted(range(len(diversity)), key=lambda index: -diversity[index])
        kept = most_diverse[: math.ceil(self.settings["kept_share"] * len(diversity))]
        if not self.settings["weighting"]:
            return kept, [1.0] * len(diversity)
        return kept, [
            math.exp(d * c / self.settings["temperature"]) for d, c in zip(diversity, certainty, strict=True)
        ]  # (4)

    def _soft_likelihood_ratio(self, logits: Tensor) -> Tensor:
        total = torch.zeros((), dtype=logits.dtype)
        for p in softmax(logits):
            if p > self.settings["clip"]:
                p = torch.tensor(self.settings["clip"], dtype=logits.dtype)
            total = total - p * (p / (1 - p) + 1e-5).log()
        return total

    def _update(self, gradients: dict[str, Tensor], weights: dict[str, float]) -> None:
        for name, value in self.trainable.items():
            gradient, rate = gradients[name], self.settings["learning_rate"] * weights[name] * self.scales[name]
            self.gradients[value] = [gradient]
            self.learning_rates[value] = rate
            value.data = value.data - rate * gradient / (gradient.abs() + 1e-8)  # (7)
            value.data = value.data + self.settings["anchor"] * (self.source[name] - value.data)  # (8)


def _scaled(values: list[float]) -> list[float]:
    low, high = min(values), max(values)
    return [(value - low) / (high - low) if high > low else 0.0 for value in values]
