"""PALM: adaptive learning rates from prediction uncertainty and parameter sensitivity (Maharana et al., AAAI 2025)."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import Tensor, nn

from driftlaw.base import Adapter, AugmentationSettings, Plan, StepOutput
from driftlaw.components.augment import Align, aligned_mean, draw_augmentation
from driftlaw.components.batch_norm import use_batch_stats
from driftlaw.components.fisher import tensor_sizes
from driftlaw.components.layer_rates import EPSILON, adam_update
from driftlaw.components.losses import entropy, soft_cross_entropy
from driftlaw.components.parameters import adapt_layers
from driftlaw.components.sample_weights import masked_mean
from driftlaw.dense import pixels
from driftlaw.execution.precision import at_least_float32


class Palm(Adapter, name="palm"):
    """PALM (Maharana et al., AAAI 2025): tensors with small gradients learn, each at a rate from its sensitivity.

    θˡ is a parameter tensor, y and ŷ are the logits of the batch and of the augmented batch, H the entropy of an image.

        (1)  gˡ = ∂/∂θˡ E[−Σ_c log softmax(y/T)_c]   gradient towards the uniform distribution
        (2)  θˡ is selected if ‖gˡ‖₁ ≤ threshold     small gradients: the prediction is uncertain
        (3)  sˡ = |θˡ·gˡ|                            sensitivity, element by element; selected tensors only
        (4)  Eˡ ← β₃·Eˡ + (1 − β₃)·sˡ                its moving average
        (5)  wˡ = mean((|sˡ − Eˡ| + ε)/(Eˡ + ε))     weight of the tensor
        (6)  L = mean of H over images with H < 0.4, plus λ·E[−Σ_c softmax(y)_c·log softmax(ŷ)_c]
        (7)  θˡ ← θˡ − η·wˡ·Δθˡ                      Δθˡ: first step of a new Adam

    Convolutions and norm layers are adapted with batch statistics. Logits are from before the update.

    **Differences from the paper:** the defaults follow the released code. A tensor that was selected once keeps its
    last weight; one that was never selected is frozen. The target of (1) is 1 for every class, not 1/K, and the
    thresholds belong to this scale. If no image is below the entropy threshold, its part of (6) is 0; the released loss
    is NaN then, with the same gradient. Only Eˡ and one number per tensor are stored.
    """

    title = "PALM"
    paper = "PALM: pushing adaptive learning rate mechanisms for continual test-time adaptation, AAAI 2025"
    adapts = "convolutions and norm layers, each tensor at its own rate"
    forward_cost, backward_cost = 2, 6
    layer_weights: Tensor

    class Config(AugmentationSettings):
        """Settings of PALM; the defaults are those for CIFAR-10-C. Texts list CIFAR-10-C, CIFAR-100-C, ImageNet-C."""

        learning_rate: PositiveFloat = 5e-4
        """η, the rate of a tensor with weight 1: 5e-4, 5e-4, 5e-5."""
        temperature: PositiveFloat = 50.0
        """T of (1): 50, 100, 1000."""
        gradient_threshold: NonNegativeFloat = 1.0
        """Largest L1 norm of the gradient of a selected tensor in (2): 1.0, 0.5, 0.3."""
        sensitivity_momentum: float = Field(default=0.5, ge=0.0, lt=1.0)
        """β₃ of (4), weight of the old moving average: 0.5, 0.1, 0.5."""
        entropy_threshold: NonNegativeFloat = 0.4
        """Images with a lower entropy, in nats, are used in (6); the same for every number of classes."""
        consistency_weight: NonNegativeFloat = 0.1
        """λ of (6), 0.01 × the number of classes: 0.1, 1, 10."""
        weight_decay: NonNegativeFloat = 0.0
        """Factor of θ that is added to the gradient of (6): 0, 5e-4, 0."""

    def configure(self, model: nn.Module) -> None:
        """Adapt convolutions and norm layers, with batch statistics."""
        adapt_layers(model, ["conv", "norm"])
        use_batch_stats(model, self.config.stored_stats_weight)

    def setup(self, train_data: Any) -> None:
        """Create the moving average of the sensitivity, and the weight of every tensor."""
        for index, value in enumerate(self.trainable_parameters()):
            self.add_state(f"sensitivity_{index}", torch.zeros_like(value))
        self.add_state("layer_weights", torch.zeros_like(tensor_sizes(self.trainable_parameters())))

    def diagnostic_labels(self) -> dict[str, list[str]]:
        """Return the names of the tensors."""
        return {"layer_weights": self.trainable_names}

    def draw(self, images: Tensor) -> Plan:
        """Draw the augmentation."""
        return Plan(augment=draw_augmentation(images, self.generator, self.dense_augmentation(images)))

    def _uniform_gradients(self, logits: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
        loss = -(pixels(logits) / self.config.temperature).log_softmax(dim=1).sum(dim=1).mean()  # (1)
        return list(torch.autograd.grad(loss, parameters, retain_graph=True, materialize_grads=True))

    @torch.no_grad()
    def _update_layer_weights(self, gradients: Sequence[Tensor]) -> None:
        gradients = [at_least_float32(value) for value in gradients]
        selected = torch.stack(torch._foreach_norm(gradients, 1)) <= self.config.gradient_threshold  # (2)
        values: list[Tensor] = [*self.trainable_parameters()]
        sensitivity = torch._foreach_abs(torch._foreach_mul(values, gradients))  # (3)
        average = self.parameter_state("sensitivity")
        change = torch._foreach_sub(sensitivity, average)
        # 0 for a tensor that is not selected: it keeps its average.
        share = (1 - self.config.sensitivity_momentum) * selected.to(self.layer_weights)
        torch._foreach_add_(average, torch._foreach_mul(change, list(share.unbind())))  # (4)
        uncertainty = torch._foreach_abs(torch._foreach_sub(sensitivity, average))
        ratios = torch._foreach_div(torch._foreach_add(uncertainty, EPSILON), torch._foreach_add(average, EPSILON))
        weights = torch.stack([ratio.mean() for ratio in ratios])  # (5)
        self.layer_weights.copy_(torch.where(selected, weights, self.layer_weights))

    def _loss(self, align: Align | None, logits: Tensor, augmented_logits: Tensor | None) -> Tensor:
        logits = pixels(logits)
        entropies = entropy(logits, reduction="none")
        certain = masked_mean(entropies, entropies < self.config.entropy_threshold)
        assert augmented_logits is not None
        consistency = aligned_mean(soft_cross_entropy, logits, augmented_logits, align)
        weighted: Tensor = self.config.consistency_weight * consistency
        return certain + weighted  # (6)

    def update(self, images: Tensor, plan: Plan) -> StepOutput:
        """Predict, weigh the tensors by the change of their sensitivity, and take one step."""
        parameters: list[Tensor] = [*self.trainable_parameters()]
        loss = partial(self._loss, plan.align)
        result = self.two_pass(parameters, images, plan.augment, loss, self._uniform_gradients)
        self._update_layer_weights(result.probe)
        if self.config.weight_decay:
            result.summands.append(list(torch._foreach_mul(parameters, self.config.weight_decay)))
        adam_update(parameters, result.summands, self.config.learning_rate * self.layer_weights)  # (7)
        return StepOutput(result.logits, {"layer_weights": self.layer_weights.clone()})
