"""One LAW step written from the equations of the paper, with loops; nothing of driftlaw is used."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from tests.reference.components import GradientHistory, softmax, with_batch_statistics


class ReferenceLaw:
    """A model and the full-size Fisher diagonals of its convolutions and normalization layers.

    The settings have the names of `driftlaw.methods.law.Law.Config`. The test passes in the augmented images.

    Attributes:
        gradients: the gradients that Adam's moments are made of: of the last step, or of all steps if they are kept.
        learning_rates: the learning rate of every tensor that was updated in the last step.
    """

    def __init__(self, model: nn.Module, **settings) -> None:
        self.model = with_batch_statistics(model)
        self.settings = {
            "learning_rate": 1e-3,
            "tau": 1.0,
            "consistency_weight": 0.1,
            "grouping": "tensor",
            "reduction": "mean",
            "fisher": "batch",
            "moments": "fresh",
            "compat": "none",
            "detach_target": False,
            "fisher_decay": 1.0,
            "fisher_every": 1,
            "fisher_settling": 20,
            "skip_share": 0.0,
            "augment_every": 1,
            "recompute": False,  # saves memory; the numbers are the same
        } | settings
        self.skipped: set[str] = set()
        self.was_scored = True
        self.trainable: dict[str, nn.Parameter] = {}
        for module_name, module in self.model.named_modules():
            if isinstance(module, nn.Conv2d | nn.BatchNorm2d | nn.GroupNorm | nn.LayerNorm):
                for name, value in module.named_parameters(recurse=False):
                    self.trainable[f"{module_name}.{name}"] = value
        self.diagonal = {name: torch.zeros_like(value) for name, value in self.trainable.items()}
        self.stale = {name: torch.zeros_like(value) for name, value in self.trainable.items()}
        self.first = {name: torch.zeros_like(value) for name, value in self.trainable.items()}
        self.second = {name: torch.zeros_like(value) for name, value in self.trainable.items()}
        self.steps = 0
        self.gradients: GradientHistory = {}
        self.learning_rates: dict[nn.Parameter, float] = {}

    def step(self, images: Tensor, augmented: Tensor) -> tuple[Tensor, dict[str, float]]:
        """Predict and update; return the logits and the weight of every tensor."""
        logits = self.model(images)
        scored = self._is_scored()
        if scored:
            for name, squared in self._squared_scores(images).items():  # Eq. 3 and 4
                self.diagonal[name] = self.settings["fisher_decay"] * self.diagonal[name] + squared
        weights = self._weights()
        gradients = self._loss_gradients(images, augmented if scored or self._is_augmented() else None)
        if not scored and self.was_scored:
            self._choose_skipped(weights)
        self.was_scored = scored
        self.steps += 1
        self.learning_rates = {}
        for name, value in self.trainable.items():  # Eq. 10
            if not scored and name in self.skipped:
                continue
            history = self.gradients.get(value, []) if self.settings["moments"] == "kept" else []
            self.gradients[value] = [*history, gradients[name]]
            self.learning_rates[value] = self.settings["learning_rate"] * weights[name]
            value.data = value.data - self.learning_rates[value] * self._adam_direction(name, gradients[name])
            self.stale[name] = gradients[name]
        return logits.detach(), weights

    def _is_scored(self) -> bool:
        settled = self.steps - self.settings["fisher_settling"]
        return settled < 0 or settled % self.settings["fisher_every"] == 0

    def _is_augmented(self) -> bool:
        since_scored = (self.steps - self.settings["fisher_settling"]) % self.settings["fisher_every"]
        return since_scored % self.settings["augment_every"] == 0

    def _choose_skipped(self, weights: dict[str, float]) -> None:
        """Skip the tensors of lowest weight, up to a share of all entries; active tensors count 1.25 times."""
        order = sorted(weights, key=lambda name: weights[name] * (1 if name in self.skipped else 1.25))
        total = sum(value.numel() for value in self.trainable.values())
        self.skipped, passed = set(), 0
        for name in order:
            passed += self.trainable[name].numel()
            if passed <= self.settings["skip_share"] * total:
                self.skipped.add(name)

    def _gradients(self, loss: Tensor) -> dict[str, Tensor]:
        self.model.zero_grad()
        loss.backward()
        gradients = {name: value.grad.clone() for name, value in self.trainable.items()}
        self.model.zero_grad()
        return gradients

    def _squared_scores(self, images: Tensor) -> dict[str, Tensor]:
        if self.settings["fisher"] == "per_sample":
            return self._per_sample(images)
        scores = self._gradients(_pseudo_label_nll(self.rows(self.model(images))))  # Eq. 2
        if self.settings["compat"] == "released_2024":
            scores = {name: scores[name] + self.stale[name] for name in scores}
        return {name: score * score for name, score in scores.items()}

    def _per_sample(self, images: Tensor) -> dict[str, Tensor]:
        """Return the mean over images of the squared gradient of each, with constant batch statistics."""
        inputs: list[Tensor] = []
        norms = [module for module in self.model.modules() if isinstance(module, nn.BatchNorm2d)]
        hooks = [norm.register_forward_pre_hook(lambda _, args: inputs.append(args[0].detach())) for norm in norms]
        with torch.no_grad():
            self.model(images)
        for hook in hooks:
            hook.remove()
        for norm, values in zip(norms, inputs, strict=True):
            norm.running_mean = values.mean(dim=(0, 2, 3))
            norm.running_var = values.var(dim=(0, 2, 3), unbiased=False)
        total = {name: torch.zeros_like(value) for name, value in self.trainable.items()}
        for image in images:
            scores = self._gradients(_pseudo_label_nll(self.rows(self.model(image[None]))))
            for name, score in scores.items():
                total[name] += score * score / len(images)
        for norm in norms:
            norm.running_mean = norm.running_var = None
        return total

    def group_of(self, name: str) -> str:
        parts = name.split(".")
        if self.settings["grouping"] == "tensor":
            return name
        if self.settings["grouping"] == "module":
            return ".".join(parts[:-1])
        path = []
        for part in parts[:-1]:
            if path and path[-1].isdigit() and not part.isdigit():
                break
            path.append(part)
        return ".".join(path)

    def _weights(self) -> dict[str, float]:
        """Return w̄ by Eq. 5 (root of mean or trace of the diagonal of a group) and Eq. 7 (exponential min-max)."""
        entries: dict[str, list[float]] = {}
        for name, diagonal in self.diagonal.items():
            entries.setdefault(self.group_of(name), []).extend(diagonal.flatten().tolist())
        importance = {}
        for group, values in entries.items():
            total = math.fsum(values)
            importance[group] = math.sqrt(total / len(values) if self.settings["reduction"] == "mean" else total)
        low, high = min(importance.values()), max(importance.values())
        scaled = {group: ((w - low) / (high - low + 1e-8)) ** self.settings["tau"] for group, w in importance.items()}
        return {name: scaled[self.group_of(name)] for name in self.diagonal}

    def _loss_gradients(self, images: Tensor, augmented: Tensor | None) -> dict[str, Tensor]:
        """Return the gradients of Eq. 9, or of the entropy (Eq. 8) if there are no augmented images."""
        logits = self.model(images)
        augmented_logits = logits if augmented is None else self.model(augmented)
        consistency_weight = 0.0 if augmented is None else self.settings["consistency_weight"]
        loss = torch.zeros((), dtype=images.dtype)
        rows, pairs = self.rows(logits), self.pairs(logits, augmented_logits)
        for row in rows:
            p = softmax(row)
            for label in range(len(p)):
                loss = loss - p[label] * p[label].log() / len(rows)
        for row, augmented_row in pairs:
            p, q = softmax(row), softmax(augmented_row)
            target = p.detach() if self.settings["detach_target"] else p
            for label in range(len(p)):
                loss = loss - consistency_weight * target[label] * q[label].log() / len(pairs)
        return self._gradients(loss)

    def rows(self, logits: Tensor) -> list[Tensor]:
        """Return the logits of every image."""
        return list(logits)

    def pairs(self, logits: Tensor, augmented_logits: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return the logits of every image and of its augmentation."""
        return list(zip(logits, augmented_logits, strict=True))

    def _adam_direction(self, name: str, gradient: Tensor) -> Tensor:
        """Return Adam's direction with β = (0.9, 0.999) and ε = 1e-8, with moments of this batch or kept ones."""
        kept = self.settings["moments"] == "kept"
        step = self.steps if kept else 1
        first = 0.9 * (self.first[name] if kept else 0) + 0.1 * gradient
        second = 0.999 * (self.second[name] if kept else 0) + 0.001 * gradient * gradient
        self.first[name], self.second[name] = first, second
        return (first / (1 - 0.9**step)) / ((second / (1 - 0.999**step)).sqrt() + 1e-8)


def _pseudo_label_nll(rows: list[Tensor]) -> Tensor:
    """Return the mean negative log-likelihood of the predicted labels."""
    total = torch.zeros((), dtype=rows[0].dtype)
    for row in rows:
        total = total - softmax(row)[int(row.argmax())].log()
    return total / len(rows)
