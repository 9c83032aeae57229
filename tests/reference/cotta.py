"""One CoTTA step, one image and one class at a time; nothing of driftlaw is used."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.reference.components import (
    GradientHistory,
    cross_entropy,
    ema_update,
    make_optimizer,
    minimize,
    softmax,
    symmetric_cross_entropy,
    with_batch_statistics,
)


class ReferenceCotta:
    """Student, teacher and anchor (source model). The test passes in everything that is random.

    Attributes:
        gradients: the student's gradients of all steps.
    """

    def __init__(self, model: nn.Module, **settings) -> None:
        self.settings = {
            "learning_rate": 1e-3,
            "optimizer": "adam",
            "teacher_momentum": 0.999,
            "confidence_threshold": 0.92,
            "symmetric": False,
        } | settings
        self.student, self.teacher, self.anchor = (with_batch_statistics(model) for _ in range(3))
        self.optimizer = make_optimizer(
            self.settings["optimizer"], self.student.parameters(), self.settings["learning_rate"]
        )
        self.gradients: GradientHistory = {}

    def step(self, images: Tensor, augmented_copies: list[Tensor], restored: dict[str, Tensor]) -> Tensor:
        """Predict with the teacher and update.

        Args:
            images: the batch.
            augmented_copies: the batch, augmented several times.
            restored: which entries of every parameter return to the source model.
        """
        with torch.no_grad():
            confidence = sum(float(softmax(row).max()) for row in self.anchor(images)) / len(images)
            if confidence < self.settings["confidence_threshold"]:
                teacher_logits = torch.stack([self.teacher(augmented) for augmented in augmented_copies]).mean(0)
            else:
                teacher_logits = self.teacher(images)
        loss = symmetric_cross_entropy if self.settings["symmetric"] else cross_entropy
        minimize(loss(teacher_logits, self.student(images)), self.optimizer, self.gradients)
        ema_update(self.teacher, self.student, self.settings["teacher_momentum"])
        for name, value in self.student.named_parameters():
            mask = restored[name].to(value.dtype)
            value.data = self.anchor.get_parameter(name).data * mask + value.data * (1 - mask)
        return teacher_logits
