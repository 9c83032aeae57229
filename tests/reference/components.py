"""Parts that several reference implementations share, written with loops; nothing of driftlaw is used."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import torch
from torch import Tensor, nn

GradientHistory = dict[nn.Parameter, list[Tensor]]
"""The gradients that the current Adam moments of each parameter are made of, oldest first."""


def with_batch_statistics(model: nn.Module) -> nn.Module:
    """Return a copy in eval mode whose BatchNorm layers use the statistics of the current batch."""
    model = copy.deepcopy(model).eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean = module.running_var = None
    return model


def make_optimizer(kind: str, parameters: Iterable[nn.Parameter], learning_rate: float) -> torch.optim.Optimizer:
    if kind == "adam":
        return torch.optim.Adam(parameters, lr=learning_rate, betas=(0.9, 0.999), eps=1e-8)
    return torch.optim.SGD(parameters, lr=learning_rate, momentum=0.9, nesterov=True)


def minimize(loss: Tensor, optimizer: torch.optim.Optimizer, gradients: GradientHistory) -> None:
    """Take one optimizer step and append the gradients that it used to ``gradients``."""
    optimizer.zero_grad()
    loss.backward()
    for group in optimizer.param_groups:
        for value in group["params"]:
            if value.grad is not None:
                gradients.setdefault(value, []).append(value.grad.clone())
    optimizer.step()


def softmax(logits: Tensor) -> Tensor:
    """Return the probabilities of one image."""
    return logits.exp() / logits.exp().sum()


def entropy(logits: Tensor) -> Tensor:
    return cross_entropy(logits, logits)


def cross_entropy(target: Tensor, logits: Tensor) -> Tensor:
    """Return −Σ p·log q, the mean over images, one image and one class at a time."""
    total = torch.zeros((), dtype=logits.dtype)
    for target_row, row in zip(target, logits, strict=True):
        for p, q in zip(softmax(target_row), softmax(row), strict=True):
            total = total - p * q.log() / len(logits)
    return total


def symmetric_cross_entropy(first: Tensor, second: Tensor) -> Tensor:
    return cross_entropy(first, second) / 2 + cross_entropy(second, first) / 2


def labelled_cross_entropy(logits: Tensor, labels: list[int]) -> Tensor:
    """Return −log p of the label, the mean over images."""
    total = torch.zeros((), dtype=logits.dtype)
    for row, label in zip(logits, labels, strict=True):
        total = total - softmax(row)[label].log() / len(labels)
    return total


def ema_update(teacher: nn.Module, student: nn.Module, momentum: float) -> None:
    for value, student_value in zip(teacher.parameters(), student.parameters(), strict=True):
        value.data = momentum * value.data + (1 - momentum) * student_value.data


def cosine(first: Tensor, second: Tensor) -> Tensor:
    return (first * second).sum() / ((first * first).sum().sqrt() * (second * second).sum().sqrt())
