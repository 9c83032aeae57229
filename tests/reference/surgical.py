"""Surgical fine-tuning of a model whose stages are given by name prefixes; nothing of driftlaw is used."""

from __future__ import annotations

from torch import Tensor, nn

from tests.reference.components import GradientHistory, entropy, make_optimizer, minimize, with_batch_statistics


class ReferenceSurgical:
    """Entropy minimisation over the parameters whose names start with one of some prefixes.

    Args:
        model: the source model.
        prefixes: name prefixes of the trainable parameters.
        norm_only: if True, only scale and shift of BatchNorm layers among them are trainable.
        optimizer: ``adam`` or ``sgd``.
        learning_rate: its step size.

    Attributes:
        gradients: the gradients of all steps.
    """

    def __init__(
        self, model: nn.Module, prefixes: list[str], *, norm_only: bool, optimizer: str, learning_rate: float
    ) -> None:
        self.model = with_batch_statistics(model)
        self.trainable: dict[str, nn.Parameter] = {}
        for path, module in self.model.named_modules():
            for name, value in module.named_parameters(recurse=False):
                full_name = f"{path}.{name}"
                selected = any(full_name.startswith(prefix) for prefix in prefixes)
                if selected and (isinstance(module, nn.BatchNorm2d) or not norm_only):
                    self.trainable[full_name] = value
        self.optimizer = make_optimizer(optimizer, list(self.trainable.values()), learning_rate)
        self.gradients: GradientHistory = {}

    def step(self, images: Tensor) -> Tensor:
        """Predict, then take one step on the entropy."""
        logits = self.model(images)
        minimize(entropy(logits), self.optimizer, self.gradients)
        return logits.detach()
