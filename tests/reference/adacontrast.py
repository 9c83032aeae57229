"""AdaContrast written out by hand: an image, a neighbour and a key at a time; nothing of driftlaw is used."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn


class ReferenceAdaContrast:
    """A model, its momentum model, and two plain lists of what is remembered; the views are handed to each step."""

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

    def step(self, images: Tensor, weak: Tensor, query: Tensor, key: Tensor) -> tuple[Tensor, list[int]]:
        """Learn from the views, then answer; return the answer and the pseudo-labels."""
        with torch.no_grad():
            keys = [_unit(feature) for feature in self.momentum_model.forward_features(key)]
        self.model.train()
        labels = self._pseudo_labels(weak)
        self._descend(self._loss(query, keys, labels))
        with torch.no_grad():
            features = self.momentum_model.forward_features(weak)
            answers = self.momentum_model.forward_head(features)
            self.bank += [(_unit(feature), _softmax(row)) for feature, row in zip(features, answers, strict=True)]
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
            answers = self.model.forward_head(features)
        if self.images_seen < self.settings["own_label_images"]:
            return [int(row.argmax()) for row in answers]
        labels = []
        for feature in features:
            cosines = [float(_unit(feature) @ other) for other, _ in self.bank]
            order = sorted(range(len(cosines)), key=lambda place: -cosines[place])
            nearest = order[: self.settings["neighbours"]]
            votes = sum(self.bank[place][1] for place in nearest) / len(nearest)
            labels.append(int(votes.argmax()))
        return labels

    def _loss(self, query: Tensor, keys: list[Tensor], labels: list[int]) -> Tensor:
        features = self.model.forward_features(query)
        answers = [_softmax(row) for row in self.model.forward_head(features)]
        count = len(labels)
        classification = contrast = torch.zeros((), dtype=query.dtype)
        for answer, feature, key, label in zip(answers, features, keys, labels, strict=True):
            classification = classification - answer[label].log() / count
            positive = (_unit(feature) @ key / self.settings["temperature"]).exp()
            total = positive
            for other, its_label in self.queue:
                if its_label != label:
                    total = total + (_unit(feature) @ other / self.settings["temperature"]).exp()
            contrast = contrast - (positive / total).log() / count
        mean = sum(answers) / count
        diversity = sum(share * share.log() for share in mean)
        return (
            self.settings["classification_weight"] * classification
            + self.settings["contrast_weight"] * contrast
            + self.settings["diversity_weight"] * diversity
        )

    def _descend(self, loss: Tensor) -> None:
        """SGD with weight decay, momentum 0.9 and Nesterov's look ahead."""
        self.model.zero_grad()
        loss.backward()
        for name, value in self.model.named_parameters():
            gradient = value.grad + self.settings["weight_decay"] * value.data
            self.velocity[name] = 0.9 * self.velocity[name] + gradient
            value.data = value.data - self.settings["learning_rate"] * (gradient + 0.9 * self.velocity[name])


def _unit(feature: Tensor) -> Tensor:
    return feature / (feature * feature).sum().sqrt()


def _softmax(logits: Tensor) -> Tensor:
    raised = logits.exp()
    return raised / raised.sum()
