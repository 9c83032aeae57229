"""One PALM step, one image, one class and one weight at a time; nothing of driftlaw is used."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.reference.components import GradientHistory, cross_entropy, entropy, softmax, with_batch_statistics


class ReferencePalm:
    """A model and the moving average of the sensitivity of every weight. The test passes in the augmented images.

    Attributes:
        gradients: the gradient of every tensor in the last step, with weight decay.
        learning_rates: the learning rate of every tensor in the last step.
        selected: the names of the tensors that the last step selected.
    """

    def __init__(self, model: nn.Module, **settings) -> None:
        self.settings = {
            "learning_rate": 5e-4,
            "temperature": 50.0,
            "gradient_threshold": 1.0,
            "sensitivity_momentum": 0.5,
            "entropy_threshold": 0.4,
            "consistency_weight": 0.1,
            "weight_decay": 0.0,
        } | settings
        self.model = with_batch_statistics(model)
        self.trainable: dict[str, nn.Parameter] = {}
        for module_name, module in self.model.named_modules():
            if isinstance(module, nn.Conv2d | nn.BatchNorm2d | nn.GroupNorm | nn.LayerNorm):
                for name, value in module.named_parameters(recurse=False):
                    self.trainable[f"{module_name}.{name}"] = value
        self.average = {name: torch.zeros_like(value) for name, value in self.trainable.items()}
        self.weights = dict.fromkeys(self.trainable, 0.0)
        self.selected: set[str] = set()
        self.gradients: GradientHistory = {}
        self.learning_rates: dict[nn.Parameter, float] = {}

    def step(self, images: Tensor, augmented: Tensor) -> Tensor:
        logits = self.model(images)
        self._update_weights(logits)
        loss = self.settings["consistency_weight"] * cross_entropy(logits, self.model(augmented))
        certain = [entropy(row[None]) for row in logits if entropy(row[None]) < self.settings["entropy_threshold"]]
        if certain:
            loss = loss + sum(certain) / len(certain)
        for name, gradient in self._gradients(loss).items():
            value = self.trainable[name]
            gradient = gradient + self.settings["weight_decay"] * value.data
            self.gradients[value] = [gradient]
            self.learning_rates[value] = self.settings["learning_rate"] * self.weights[name]
            value.data = value.data - self.learning_rates[value] * gradient / (gradient.abs() + 1e-8)
        return logits.detach()

    def _update_weights(self, logits: Tensor) -> None:
        beta = self.settings["sensitivity_momentum"]
        loss = torch.zeros((), dtype=logits.dtype)
        for row in logits:
            for p in softmax(row / self.settings["temperature"]):
                loss = loss - p.log() / len(logits)
        self.selected = set()
        for name, gradient in self._gradients(loss).items():
            if sum(abs(entry) for entry in gradient.flatten().tolist()) > self.settings["gradient_threshold"]:
                continue
            self.selected.add(name)
            sensitivity = (self.trainable[name].data * gradient).abs()
            self.average[name] = beta * self.average[name] + (1 - beta) * sensitivity
            uncertainty = (sensitivity - self.average[name]).abs()
            self.weights[name] = float(((uncertainty + 1e-8) / (self.average[name] + 1e-8)).mean())

    def _gradients(self, loss: Tensor) -> dict[str, Tensor]:
        self.model.zero_grad()
        loss.backward(retain_graph=True)
        gradients = {name: value.grad.clone() for name, value in self.trainable.items()}
        self.model.zero_grad()
        return gradients
