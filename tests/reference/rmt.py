"""RMT: prototypes, warm-up and one step, one image at a time; nothing of driftlaw is used."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from tests.reference.components import (
    GradientHistory,
    cosine,
    ema_update,
    labelled_cross_entropy,
    make_optimizer,
    minimize,
    symmetric_cross_entropy,
    with_batch_statistics,
)


class ReferenceRmt:
    """Student, teacher, projector and prototypes. The test passes in everything that is random.

    Attributes:
        gradients: the gradients of student and projector in all steps, those of the warm-up first.
    """

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
        self.optimizer = make_optimizer(self.settings["optimizer"], parameters, self.settings["learning_rate"])
        self.gradients: GradientHistory = {}

    def compute_prototypes(self, batches: list[tuple[Tensor, list[int]]], num_classes: int) -> None:
        features_by_class: dict[int, list[Tensor]] = {label: [] for label in range(num_classes)}
        with torch.no_grad():
            for images, labels in batches:
                for feature, label in zip(self.student.forward_features(images), labels, strict=True):
                    features_by_class[label].append(feature)
        self.prototypes = [sum(features) / len(features) for features in features_by_class.values()]

    def warm_up(self, batches: list[Tensor]) -> None:
        learning_rate = self.settings["learning_rate"]
        for index, images in enumerate(batches):
            self.optimizer.param_groups[0]["lr"] = learning_rate * (index + 1) / len(batches)
            self._update(symmetric_cross_entropy(self.student(images), self.teacher(images).detach()))
        self.optimizer.param_groups[0]["lr"] = learning_rate

    def step(self, images: Tensor, augmented: Tensor, train_images: Tensor, labels: list[int]) -> Tensor:
        """Predict with student and teacher, and update; return the sum of their logits."""
        features, features_augmented = self.student.forward_features(images), self.student.forward_features(augmented)
        logits, logits_augmented = self.student.head(features), self.student.head(features_augmented)
        teacher_logits = self.teacher(images).detach()
        agreement = symmetric_cross_entropy(logits, teacher_logits) / 2
        agreement = agreement + symmetric_cross_entropy(logits_augmented, teacher_logits) / 2
        loss = self.settings["agreement_weight"] * agreement
        loss = loss + self.settings["contrast_weight"] * self._contrastive_loss(features, features_augmented)
        if not self.settings["source_free"]:
            replay = labelled_cross_entropy(self.student(train_images), labels)
            loss = loss + self.settings["source_weight"] * replay
        self._update(loss)
        return (logits + teacher_logits).detach()

    def _contrastive_loss(self, features: Tensor, augmented: Tensor) -> Tensor:
        """Compare each view of an image with every other view of every image."""
        views: list[tuple[int, Tensor]] = []
        for image, (feature, feature_augmented) in enumerate(zip(features, augmented, strict=True)):
            similarities = [float(cosine(feature.detach(), prototype)) for prototype in self.prototypes]
            nearest = self.prototypes[similarities.index(max(similarities))]
            views += [(image, self.projector(view[None])[0]) for view in (nearest, feature, feature_augmented)]
        total = torch.zeros((), dtype=features.dtype)
        for index, (image, anchor) in enumerate(views):
            others = [view for i, view in enumerate(views) if i != index]
            terms = [(cosine(anchor, view) / self.settings["temperature"]).exp() for _, view in others]
            for (other_image, _), term in zip(others, terms, strict=True):
                if other_image == image:
                    total = total - (term / sum(terms)).log() / 2
        return total / len(views)

    def _update(self, loss: Tensor) -> None:
        minimize(loss, self.optimizer, self.gradients)
        ema_update(self.teacher, self.student, self.settings["teacher_momentum"])
