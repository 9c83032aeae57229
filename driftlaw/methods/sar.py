"""SAR: sharpness-aware entropy minimisation on reliable images (Niu et al., ICLR 2023)."""

import math
from typing import Any

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import Tensor, nn

from driftlaw.base import Adapter, BatchStatsSettings, Plan, StepOutput
from driftlaw.components.batch_norm import use_batch_stats
from driftlaw.components.losses import entropy
from driftlaw.components.optimizers import make_optimizer, step_if
from driftlaw.components.parameters import adapt_layers
from driftlaw.components.sample_weights import masked_mean
from driftlaw.components.stages import freeze_last_stage


class Sar(Adapter, name="sar"):
    """SAR (Niu et al., ICLR 2023): entropy minimisation on reliable images, towards flat minima, with a reset.

    θ are scale and shift of the norm layers, H(x; θ) is the entropy of an image, K the number of classes.

        (1)  R = {x : H(x; θ) < E₀}, E₀ = 0.4·ln K         reliable images
        (2)  θ' = θ + ρ·g/‖g‖, g = ∂/∂θ mean of H over R    the worst parameters near θ, to first order
        (3)  R' = {x in R : H(x; θ') < E₀}
        (4)  L = mean of H(x; θ') over R'; SGD step of θ with ∂L/∂θ'
        (5)  e ← 0.9·e + 0.1·L, e = L at first
        (6)  if e < threshold: θ and e return to their initial values

    The last stage of a ResNet and the last quarter of the blocks of a vision transformer are frozen. BatchNorm layers
    use batch statistics. Logits are from before the update.

    **Differences from the paper:** the threshold of (6) is relative to ln K; it is 0.2 for 1,000 classes, as in the
    paper. The released code uses 0.2 always and keeps the low e after a reset, so that it resets again at the following
    batches. Momentum is kept at a reset, as in the released code. A batch with an empty R' changes nothing; in the
    released code momentum still moves θ. The learning rate is not scaled for batches below 32 images.
    """

    title = "SAR"
    paper = "Towards stable test-time adaptation in dynamic wild world, ICLR 2023"
    adapts = "scale and shift of norm layers, except in the last stage"
    forward_cost, backward_cost = 2, 2
    loss_average: Tensor

    class Config(BatchStatsSettings):
        """Settings of SAR; the defaults are those for CIFAR-10-C. Texts list CIFAR-10-C, CIFAR-100-C, ImageNet-C."""

        learning_rate: PositiveFloat = 1e-3
        """Step size of SGD with momentum 0.9: 1e-3, 1e-3, 2.5e-4."""
        radius: NonNegativeFloat = 0.05
        """ρ of (2)."""
        entropy_threshold: PositiveFloat = 0.4
        """E₀ of (1) and (3), as a share of ln K."""
        loss_momentum: float = Field(default=0.9, ge=0.0, lt=1.0)
        """Weight of the old average in (5)."""
        reset_threshold: NonNegativeFloat = 0.2 / math.log(1000)
        """Threshold of (6), as a share of ln K; 0: never reset."""
        freeze_last_stage: bool = True
        """Whether the last stage of a ResNet or vision transformer is frozen."""

    def configure(self, model: nn.Module) -> None:
        """Adapt norm layers, except in the last stage, with batch statistics."""
        adapt_layers(model, ["norm"])
        if self.config.freeze_last_stage:
            freeze_last_stage(model)
        use_batch_stats(model, self.config.stored_stats_weight)

    def setup(self, train_data: Any) -> None:
        """Create the optimizer, the average of the loss, and a copy of the initial parameters."""
        parameters = self.trainable_parameters()
        self.optimizer = make_optimizer("sgd", parameters, self.config.learning_rate, nesterov=False)
        self.add_parameter_state("initial")
        torch._foreach_copy_(self.parameter_state("initial"), [value.detach() for value in parameters])
        self.add_state("loss_average", parameters[0].detach().new_full((), torch.inf))  # inf: none

    def update(self, images: Tensor, plan: Plan) -> StepOutput:
        """Predict, take one step with the gradient at perturbed parameters, and reset if the loss is very low."""
        parameters: list[Tensor] = [*self.trainable_parameters()]
        logits = self.model(images)
        log_classes = math.log(logits.shape[1])
        limit = self.config.entropy_threshold * log_classes
        entropies = entropy(logits, reduction="none")
        reliable = entropies < limit  # (1)
        gradients = torch.autograd.grad(masked_mean(entropies, reliable), parameters, materialize_grads=True)
        originals = [value.detach().clone() for value in parameters]
        norm = torch.stack([value.norm() for value in gradients]).norm()
        with torch.no_grad():
            torch._foreach_add_(
                parameters, list(torch._foreach_mul(gradients, self.config.radius / (norm + 1e-12)))
            )  # (2)
        entropies = entropy(self.model(images), reduction="none")
        reliable &= entropies < limit  # (3)
        loss = masked_mean(entropies, reliable)
        loss.backward()
        with torch.no_grad():
            torch._foreach_copy_(parameters, originals)
        step_if(reliable.any(), self.optimizer)  # (4)
        was_reset = self._reset_if_low(loss.detach(), reliable.any(), log_classes)
        diagnostics = {"kept": reliable.to(logits.dtype).mean(), "reset": was_reset}
        return StepOutput(logits.detach(), diagnostics)

    @torch.no_grad()
    def _reset_if_low(self, loss: Tensor, updated: Tensor, log_classes: float) -> Tensor:
        average = torch.lerp(loss.to(self.loss_average), self.loss_average, self.config.loss_momentum)
        average = torch.where(self.loss_average.isinf(), loss, average)
        average = torch.where(updated, average, self.loss_average)  # (5)
        low: Tensor = average < self.config.reset_threshold * log_classes
        for value, initial in zip(self.trainable_parameters(), self.parameter_state("initial"), strict=True):
            value.copy_(torch.where(low, initial, value))  # (6)
        self.loss_average.copy_(torch.where(low, torch.inf, average))
        return low.to(average.dtype)
