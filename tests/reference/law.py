"""One LAW step written from the paper's equations, with loops, for comparison; nothing of driftlaw is used."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn


class ReferenceLaw:
    """A network and the full-size Fisher diagonals of its convolutions and norm layers.

    The settings are METHODS' words; ``augmented`` is handed to each step, since its randomness is no part of the maths.
    """

    def __init__(self, model: nn.Module, **settings) -> None:
        self.model = copy.deepcopy(model)
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
            "recompute": False,  # changes memory, no number
        } | settings
        self.skipped: set[str] = set()
        self.was_scored = True
        self.trainable: dict[str, nn.Parameter] = {}
        for module_name, module in self.model.named_modules():
            if isinstance(module, nn.Conv2d | nn.BatchNorm2d | nn.GroupNorm | nn.LayerNorm):
                for name, value in module.named_parameters(recurse=False):
                    self.trainable[f"{module_name}.{name}"] = value
        self.model.eval()
        for module in self.model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean = module.running_var = None  # so that it always uses the batch at hand
        self.diagonal = {name: torch.zeros_like(value) for name, value in self.trainable.items()}
        self.stale = {name: torch.zeros_like(value) for name, value in self.trainable.items()}
        self.first = {name: torch.zeros_like(value) for name, value in self.trainable.items()}
        self.second = {name: torch.zeros_like(value) for name, value in self.trainable.items()}
        self.steps = 0

    def step(self, images: Tensor, augmented: Tensor) -> tuple[Tensor, dict[str, float]]:
        """Answer, weigh, learn; return the answer and the weight of every tensor."""
        answer = self.model(images)
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
        for name, value in self.trainable.items():  # Eq. 10
            if not scored and name in self.skipped:
                continue
            rate = self.settings["learning_rate"] * weights[name]
            value.data = value.data - rate * self._adam_direction(name, gradients[name])
            self.stale[name] = gradients[name]
        return answer.detach(), weights

    def _is_scored(self) -> bool:
        settled = self.steps - self.settings["fisher_settling"]
        return settled < 0 or settled % self.settings["fisher_every"] == 0

    def _is_augmented(self) -> bool:
        since_scored = (self.steps - self.settings["fisher_settling"]) % self.settings["fisher_every"]
        return since_scored % self.settings["augment_every"] == 0

    def _choose_skipped(self, weights: dict[str, float]) -> None:
        """The flattest tensors, up to a share of all entries; one that moves counts as a quarter sharper."""
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
        found = {name: value.grad.clone() for name, value in self.trainable.items()}
        self.model.zero_grad()
        return found

    def _squared_scores(self, images: Tensor) -> dict[str, Tensor]:
        if self.settings["fisher"] == "per_sample":
            return self._per_sample(images)
        scores = self._gradients(_likelihood(self.model(images)))  # Eq. 2
        if self.settings["compat"] == "released_2024":
            scores = {name: scores[name] + self.stale[name] for name in scores}
        return {name: score * score for name, score in scores.items()}

    def _per_sample(self, images: Tensor) -> dict[str, Tensor]:
        """Mean over images of the squared gradient of each, batch statistics of all held as constants."""
        seen: list[Tensor] = []
        norms = [module for module in self.model.modules() if isinstance(module, nn.BatchNorm2d)]
        hooks = [norm.register_forward_pre_hook(lambda _, given: seen.append(given[0].detach())) for norm in norms]
        with torch.no_grad():
            self.model(images)
        for hook in hooks:
            hook.remove()
        for norm, values in zip(norms, seen, strict=True):
            norm.running_mean = values.mean(dim=(0, 2, 3))
            norm.running_var = values.var(dim=(0, 2, 3), unbiased=False)
        total = {name: torch.zeros_like(value) for name, value in self.trainable.items()}
        for number in range(len(images)):
            scores = self._gradients(_likelihood(self.model(images[number : number + 1])))
            for name, score in scores.items():
                total[name] += score * score / len(images)
        for norm in norms:
            norm.running_mean = norm.running_var = None
        return total

    def _group_of(self, name: str) -> str:
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
        """Eq. 5 (root of mean or trace of the diagonal of a group) and Eq. 7 (exponential min-max scaler)."""
        entries: dict[str, list[float]] = {}
        for name, diagonal in self.diagonal.items():
            entries.setdefault(self._group_of(name), []).extend(diagonal.flatten().tolist())
        sharpness = {}
        for group, values in entries.items():
            total = math.fsum(values)
            sharpness[group] = math.sqrt(total / len(values) if self.settings["reduction"] == "mean" else total)
        low, high = min(sharpness.values()), max(sharpness.values())
        scaled = {group: ((w - low) / (high - low + 1e-8)) ** self.settings["tau"] for group, w in sharpness.items()}
        return {name: scaled[self._group_of(name)] for name in self.diagonal}

    def _loss_gradients(self, images: Tensor, augmented: Tensor | None) -> dict[str, Tensor]:
        """Eq. 8 and 9, an image and a class at a time; Eq. 8 alone without augmented images."""
        answer = self.model(images)
        other = answer if augmented is None else self.model(augmented)
        consistency_weight = 0.0 if augmented is None else self.settings["consistency_weight"]
        loss = torch.zeros((), dtype=images.dtype)
        for number in range(len(images)):
            own = _probabilities(answer[number])
            target = own.detach() if self.settings["detach_target"] else own
            seen = _probabilities(other[number])
            for label in range(len(own)):
                loss = loss - own[label] * own[label].log() / len(images)
                consistency = -target[label] * seen[label].log() / len(images)
                loss = loss + consistency_weight * consistency
        return self._gradients(loss)

    def _adam_direction(self, name: str, gradient: Tensor) -> Tensor:
        """Adam with β = (0.9, 0.999) and ε = 1e-8, its moments new every batch or kept."""
        kept = self.settings["moments"] == "kept"
        step = self.steps if kept else 1
        first = 0.9 * (self.first[name] if kept else 0) + 0.1 * gradient
        second = 0.999 * (self.second[name] if kept else 0) + 0.001 * gradient * gradient
        self.first[name], self.second[name] = first, second
        return (first / (1 - 0.9**step)) / ((second / (1 - 0.999**step)).sqrt() + 1e-8)


def _probabilities(logits: Tensor) -> Tensor:
    raised = logits.exp()
    return raised / raised.sum()


def _likelihood(logits: Tensor) -> Tensor:
    """Mean negative log-likelihood of the logits at their own arg-max labels."""
    total = torch.zeros((), dtype=logits.dtype)
    for row in logits:
        total = total - _probabilities(row)[int(row.argmax())].log()
    return total / len(logits)
