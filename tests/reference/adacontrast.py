"""AdaContrast, one image, neighbour and key at a time; nothing of driftlaw is used."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from tests.reference.components import GradientHistory, softmax


class ReferenceAdaContrast:
    """A model, its momentum model, and two lists of stored features. The test passes in the views.

    Attributes:
        gradients: the gradients of all steps, without weight decay.
    """

    def __init__(self, model: nn.Module, **settings) -> None:
        self.settings = {
            "learning_rate": 2e-4,
            "weight_decay": 1e-4,
            "momentum": 0.999,
            "memory_size": 16_384,
            "neighbours": 10,
            "own_label_images": 1_024,
            "temperature": 0.07,
            "classification_weight": 1.0,
            "contrast_weight": 1.0,
            "diversity_weight": 1.0,
        } | settings
        self.model = copy.deepcopy(model).eval()
        self.momentum_model = copy.deepcopy(model).train()
        self.velocity = {name: torch.zeros_like(value) for name, value in self.model.named_parameters()}
        self.bank: list[tuple[Tensor, Tensor]] = []
        self.queue: list[tuple[Tensor, int]] = []
        self.images_seen = 0
        self.gradients: GradientHistory = {}

    def step(self, images: Tensor, weak: Tensor, query: Tensor, key: Tensor) -> tuple[Tensor, list[int]]:
        """Update on the views, then predict; return the logits and the pseudo-labels."""
        with torch.no_grad():
            keys = [_unit(feature) for feature in self.momentum_model.forward_features(key)]
        self.model.train()
        labels = self._pseudo_labels(weak)
        self._update(self._loss(query, keys, labels))
        with torch.no_grad():
            features = self.momentum_model.forward_features(weak)
            logits = self.momentum_model.forward_head(features)
            self.bank += [(_unit(feature), softmax(row)) for feature, row in zip(features, logits, strict=True)]
            self.queue += list(zip(keys, labels, strict=True))
            self.bank = self.bank[-self.settings["memory_size"] :]
            self.queue = self.queue[-self.settings["memory_size"] :]
            self.images_seen += len(images)
            slow = dict(self.momentum_model.named_parameters())
            for name, value in self.model.named_parameters():
                slow[name].mul_(self.settings["momentum"]).add_((1 - self.settings["momentum"]) * value)
            return self.model.eval()(images), labels

    def _pseudo_labels(self, weak: Tensor) -> list[int]:
        with torch.no_grad():
            features = self.model.forward_features(weak)
            logits = self.model.forward_head(features)
        if self.images_seen < self.settings["own_label_images"]:
            return [int(row.argmax()) for row in logits]
        labels = []
        for feature in features:
            cosines = [float(_unit(feature) @ other) for other, _ in self.bank]
            order = sorted(range(len(cosines)), key=lambda index: -cosines[index])
            nearest = order[: self.settings["neighbours"]]
            votes = sum(self.bank[index][1] for index in nearest) / len(nearest)
            labels.append(int(votes.argmax()))
        return labels

    def _loss(self, query: Tensor, keys: list[Tensor], labels: list[int]) -> Tensor:
        features = self.model.forward_features(query)
        probabilities = [softmax(row) for row in self.model.forward_head(features)]
        count = len(labels)
        classification = contrast = torch.zeros((), dtype=query.dtype)
        for row, feature, key, label in zip(probabilities, features, keys, labels, strict=True):
            classification = classification - row[label].log() / count
            positive = (_unit(feature) @ key / self.settings["temperature"]).exp()
            total = positive
            for other, other_label in self.queue:
                if other_label != label:
                    total = total + (_unit(feature) @ other / self.settings["temperature"]).exp()
            contrast = contrast - (positive / total).log() / count
        mean = sum(probabilities) / count
        diversity = sum(p * p.log() for p in mean)
        return (
            self.settings["classification_weight"] * classification
            + self.settings["contrast_weight"] * contrast
            + self.settings["diversity_weight"] * diversity
        )

    def _update(self, loss: Tensor) -> None:
        """Take one step of SGD with weight decay and Nesterov momentum 0.9."""
        self.model.zero_grad()
        loss.backward()
        for name, value in self.model.named_parameters():
            self.gradients.setdefault(value, []).append(value.grad.clone())
            gradient = value.grad + self.settings["weight_decay"] * value.data
            self.velocity[name] = 0.9 * self.velocity[name] + gradient
            value.data = value.data - self.settings["learning_rate"] * (gradient + 0.9 * self.velocity[name])


def _unit(feature: Tensor) -> Tensor:
    return feature / (feature * feature).sum().sqrt()
