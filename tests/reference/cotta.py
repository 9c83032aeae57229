"""One CoTTA step written out, an image and a class at a time; nothing of driftlaw is used."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn


class ReferenceCotta:
    """Student, teacher and anchor; augmented copies and the weights to restore are handed to each step."""

    def __init__(self, model: nn.Module, **settings) -> None:
        self.settings = {
            "learning_rate": 1e-3,
            "optimizer": "adam",
            "teacher_momentum": 0.999,
            "confidence_threshold": 0.92,
            "symmetric": False,
        } | settings
        self.student, self.teacher, self.anchor = (with_batch_statistics(model) for _ in range(3))
        self.optimizer = optimizer_of(self.settings, self.student.parameters())

    def step(self, images: Tensor, copies: list[Tensor], goes_back: dict[str, Tensor]) -> Tensor:
        """Answer with the teacher and learn; ``goes_back`` tells of every weight whether it is restored."""
        with torch.no_grad():
            sure = sum(float(probabilities(row).max()) for row in self.anchor(images)) / len(images)
            if sure < self.settings["confidence_threshold"]:
                answer = torch.stack([self.teacher(each) for each in copies]).mean(0)
            else:
                answer = self.teacher(images)
        logits = self.student(images)
        loss = cross_entropy(answer, logits)
        if self.settings["symmetric"]:
            loss = loss / 2 + cross_entropy(logits, answer) / 2
        self.student.zero_grad()
        loss.backward()
        self.optimizer.step()
        slow_average(self.teacher, self.student, self.settings["teacher_momentum"])
        source = dict(self.anchor.named_parameters())
        for name, value in self.student.named_parameters():
            back = goes_back[name].to(value.dtype)
            value.data = source[name].data * back + value.data * (1 - back)
        return answer


def with_batch_statistics(model: nn.Module) -> nn.Module:
    """Return a copy in which every BatchNorm uses the batch at hand."""
    own = copy.deepcopy(model).eval()
    for module in own.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean = module.running_var = None
    return own


def optimizer_of(settings: dict, parameters) -> torch.optim.Optimizer:
    if settings["optimizer"] == "adam":
        return torch.optim.Adam(parameters, lr=settings["learning_rate"], betas=(0.9, 0.999), eps=1e-8)
    return torch.optim.SGD(parameters, lr=settings["learning_rate"], momentum=0.9, nesterov=True)


def probabilities(logits: Tensor) -> Tensor:
    return logits.exp() / logits.exp().sum()


def cross_entropy(target: Tensor, answer: Tensor) -> Tensor:
    """−Σ p·log q of two answers, the mean over images."""
    total = torch.zeros((), dtype=answer.dtype)
    for row, other in zip(target, answer, strict=True):
        for p, q in zip(probabilities(row), probabilities(other), strict=True):
            total = total - p * q.log() / len(answer)
    return total


def labelled_cross_entropy(logits: Tensor, labels: list[int]) -> Tensor:
    """−log p of the label, the mean over images."""
    total = torch.zeros((), dtype=logits.dtype)
    for row, label in zip(logits, labels, strict=True):
        total = total - probabilities(row)[label].log() / len(labels)
    return total


def slow_average(teacher: nn.Module, student: nn.Module, momentum: float) -> None:
    for own, other in zip(teacher.parameters(), student.parameters(), strict=True):
        own.data = momentum * own.data + (1 - momentum) * other.data
