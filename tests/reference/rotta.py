"""RoTTA with lists of images per class and its own BatchNorm layers; nothing of driftlaw is used."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tests.reference.components import GradientHistory, cross_entropy, ema_update, entropy, minimize


class RobustNorm(nn.Module):
    """A BatchNorm2d whose statistics move by a share of those of the batch, before they are used, in train mode."""

    def __init__(self, layer: nn.BatchNorm2d, rate: float) -> None:
        super().__init__()
        self.weight, self.bias, self.eps, self.rate = layer.weight, layer.bias, layer.eps, rate
        self.mean, self.variance = layer.running_mean.clone(), layer.running_var.clone()

    def forward(self, values: Tensor) -> Tensor:
        mean, variance = self.mean, self.variance
        if self.training:
            mean = (1 - self.rate) * mean + self.rate * values.mean(dim=(0, 2, 3))
            variance = (1 - self.rate) * variance + self.rate * values.var(dim=(0, 2, 3), unbiased=False)
            self.mean, self.variance = mean.detach(), variance.detach()
        shape = (1, -1, 1, 1)
        normalized = (values - mean.view(shape)) / (variance + self.eps).sqrt().view(shape)
        return normalized * self.weight.view(shape) + self.bias.view(shape)


def replace_norm_layers(module: nn.Module, rate: float) -> None:
    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm2d):
            setattr(module, name, RobustNorm(child, rate))
        else:
            replace_norm_layers(child, rate)


@dataclass
class Item:
    image: Tensor
    entropy: float
    age: int = 0


class ReferenceRotta:
    """Student, teacher, and a memory with one list per class. The test passes in the augmentation.

    Attributes:
        gradients: the student's gradients of all updates.
        classes: the memory.
    """

    def __init__(self, model: nn.Module, num_classes: int, **settings) -> None:
        self.settings = {
            "learning_rate": 1e-3,
            "memory_size": 64,
            "update_every": 64,
            "statistics_rate": 0.05,
            "teacher_momentum": 0.999,
        } | settings
        self.student = copy.deepcopy(model).requires_grad_(False)
        replace_norm_layers(self.student, self.settings["statistics_rate"])
        self.student.eval()
        self.teacher = copy.deepcopy(self.student)
        learnt = [
            value.requires_grad_(True)
            for module in self.student.modules()
            if isinstance(module, RobustNorm)
            for value in module.parameters()
        ]
        self.optimizer = torch.optim.Adam(learnt, lr=self.settings["learning_rate"])
        self.gradients: GradientHistory = {}
        self.classes: list[list[Item]] = [[] for _ in range(num_classes)]
        self.offered = 0

    def step(self, images: Tensor, augment: Callable[[Tensor], Tensor]) -> Tensor:
        """Predict a batch; ``augment`` is called once per update."""
        with torch.no_grad():
            logits = self.teacher(images)
        for image, row in zip(images, logits, strict=True):
            self._offer(image, int(row.argmax()), float(entropy(row[None])))
            self.offered += 1
            if self.offered % self.settings["update_every"] == 0:
                self._update(augment)
        return logits

    def _score(self, age: int, uncertainty: float) -> float:
        timeliness = 1 / (1 + math.exp(-age / self.settings["memory_size"]))
        return timeliness + uncertainty / math.log(len(self.classes))

    def _offer(self, image: Tensor, label: int, uncertainty: float) -> None:
        size = self.settings["memory_size"]
        lengths = [len(items) for items in self.classes]
        if lengths[label] < size / len(self.classes) and sum(lengths) < size:
            self.classes[label].append(Item(image, uncertainty))
        else:
            if lengths[label] < size / len(self.classes):
                rivals = [index for index, length in enumerate(lengths) if length == max(lengths)]
            else:
                rivals = [label]
            worst = None
            for rival in rivals:
                for position, item in enumerate(self.classes[rival]):
                    score = self._score(item.age, item.entropy)
                    if worst is None or score >= worst[0]:
                        worst = (score, rival, position)
            if worst[0] > self._score(0, uncertainty):
                self.classes[worst[1]].pop(worst[2])
                self.classes[label].append(Item(image, uncertainty))
        for items in self.classes:
            for item in items:
                item.age += 1

    def _update(self, augment: Callable[[Tensor], Tensor]) -> None:
        items = [item for items in self.classes for item in items]
        images = torch.stack([item.image for item in items])
        self.teacher.train()
        self.student.train()
        with torch.no_grad():
            target = self.teacher(images)
        predicted = self.student(augment(images))
        loss = torch.zeros((), dtype=images.dtype)
        for item, target_row, row in zip(items, target, predicted, strict=True):
            age = item.age / self.settings["memory_size"]
            weight = math.exp(-age) / (1 + math.exp(-age))
            loss = loss + weight * cross_entropy(target_row[None], row[None]) / len(items)
        minimize(loss, self.optimizer, self.gradients)
        self.teacher.eval()
        self.student.eval()
        ema_update(self.teacher, self.student, self.settings["teacher_momentum"])
