"""RMT written out: prototypes, warm-up and a step, an image at a time; nothing of driftlaw is used."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from tests.reference.cotta import (
    cross_entropy,
    labelled_cross_entropy,
    optimizer_of,
    slow_average,
    with_batch_statistics,
)


class ReferenceRmt:
    """Student, teacher, projector and prototypes; all that is drawn is handed in."""

    def __init__(self, model: nn.Module, projector: nn.Module, **settings) -> None:
        self.settings = {
            "learning_rate": 1e-3,
            "optimizer": "adam",
            "teacher_momentum": 0.999,
            "agreement_weight": 1.0,
            "contrast_weight": 1.0,
            "source_weight": 1.0,
            "temperature": 0.1,
            "source_free": False,
        } | settings
        self.student, self.teacher = with_batch_statistics(model), with_batch_statistics(model)
        self.projector = copy.deepcopy(projector)
        parameters = [*self.student.parameters(), *self.projector.parameters()]
        self.optimizer = optimizer_of(self.settings, parameters)

    def take_prototypes(self, batches: list[tuple[Tensor, list[int]]], num_classes: int) -> None:
        members: dict[int, list[Tensor]] = {label: [] for label in range(num_classes)}
        with torch.no_grad():
            for images, labels in batches:
                for feature, label in zip(self.student.forward_features(images), labels, strict=True):
                    members[label].append(feature)
        self.prototypes = [sum(features) / len(features) for features in members.values()]

    def warm_up(self, batches: list[Tensor]) -> None:
        rate = self.settings["learning_rate"]
        for number, images in enumerate(batches):
            self.optimizer.param_groups[0]["lr"] = rate * (number + 1) / len(batches)
            self._descend(symmetric(self.student(images), self.teacher(images).detach()))
        self.optimizer.param_groups[0]["lr"] = rate

    def step(self, images: Tensor, augmented: Tensor, originals: Tensor, labels: list[int]) -> Tensor:
        features, features_augmented = self.student.forward_features(images), self.student.forward_features(augmented)
        logits, logits_augmented = self.student.head(features), self.student.head(features_augmented)
        taught = self.teacher(images).detach()
        agreement = symmetric(logits, taught) / 2 + symmetric(logits_augmented, taught) / 2
        loss = self.settings["agreement_weight"] * agreement
        loss = loss + self.settings["contrast_weight"] * self._contrast(features, features_augmented)
        if not self.settings["source_free"]:
            replayed = labelled_cross_entropy(self.student(originals), labels)
            loss = loss + self.settings["source_weight"] * replayed
        self._descend(loss)
        return (logits + taught).detach()

    def _contrast(self, features: Tensor, augmented: Tensor) -> Tensor:
        """Each view of an image against every other view of every image."""
        views: list[tuple[int, Tensor]] = []
        for number, (own, other) in enumerate(zip(features, augmented, strict=True)):
            likeness = [float(cosine(own.detach(), prototype)) for prototype in self.prototypes]
            near = self.prototypes[likeness.index(max(likeness))]
            views += [(number, self.projector(view[None])[0]) for view in (near, own, other)]
        total = torch.zeros((), dtype=features.dtype)
        for place, (number, anchor) in enumerate(views):
            others = [(n, cosine(anchor, view)) for p, (n, view) in enumerate(views) if p != place]
            raised = [(similarity / self.settings["temperature"]).exp() for _, similarity in others]
            for (n, _), value in zip(others, raised, strict=True):
                if n == number:
                    total = total - (value / sum(raised)).log() / 2
        return total / len(views)

    def _descend(self, loss: Tensor) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        slow_average(self.teacher, self.student, self.settings["teacher_momentum"])


def symmetric(one: Tensor, other: Tensor) -> Tensor:
    return cross_entropy(one, other) / 2 + cross_entropy(other, one) / 2


def cosine(one: Tensor, other: Tensor) -> Tensor:
    return (one * other).sum() / ((one * one).sum().sqrt() * (other * other).sum().sqrt())
