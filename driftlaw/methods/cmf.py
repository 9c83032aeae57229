"""CMF: continual momentum filtering of the parameters of ROID (Lee and Chang, ICLR 2024)."""

from typing import Any

import torch
from pydantic import Field, PositiveFloat
from torch import Tensor, nn

from driftlaw.base import Adapter, BatchStatsSettings, Plan, StepOutput
from driftlaw.components.augment import AugmentParams
from driftlaw.components.batch_norm import use_batch_stats
from driftlaw.components.features import find_head
from driftlaw.components.optimizers import make_optimizer, minimize_step
from driftlaw.components.parameters import adapt_layers
from driftlaw.components.prior import correct_prior
from driftlaw.components.weighted_consistency import WeightedConsistencySettings, weighted_consistency_loss

NORM_SCALARS_OF_VIT_B = 38_400  # scale and shift of all LayerNorm layers, for which q was chosen


class Cmf(Adapter, name="cmf"):
    """CMF takes the step of ROID, and pulls the parameters to a filtered source model instead of the source model.

    Weights, loss, augmentation and prior correction are ROID's. h is a hidden copy of the learnt parameters, θ₀ at
    first, and v its variance, 0 at first. After the step, with q = 0.005 · learnt scalars / 38,400:

        (1)  h ← α·h + (1 − α)·θ₀, v ← α²·v + q          prediction of a Kalman filter
        (2)  β = (1 − q)/(v + 1 − q), at least 0.89; 1 if above 0.9999
        (3)  h ← β·h + (1 − β)·θ, v ← β·v                update with the adapted parameters
        (4)  θ ← γ·θ + (1 − γ)·h

    BatchNorm layers use batch statistics. The returned logits are from before the update, with prior correction. For
    classification, logits (n, classes).

    **Differences from the paper:** those of ROID. Only learnt parameters are filtered: all others are equal in h, θ
    and θ₀. ``reset`` also clears v, which the released code does not.
    """

    title = "CMF"
    paper = "Continual momentum filtering on parameter space for online test-time adaptation, ICLR 2024"
    adapts = "scale and shift of norm layers"
    forward_cost, backward_cost = 1.5, 1.5

    class Config(WeightedConsistencySettings, BatchStatsSettings):
        """Settings of CMF; those of the loss are ROID's."""

        alpha: float = Field(default=0.99, ge=0.0, le=1.0)
        """α of (1), weight of the hidden parameters beside the source parameters."""
        gamma: float = Field(default=0.99, ge=0.0, le=1.0)
        """γ of (4), weight of the adapted parameters beside the hidden ones."""
        process_noise: PositiveFloat = 0.005
        """q for a model with 38,400 learnt scalars; q is proportional to their number."""
        least_beta: float = Field(default=0.89, ge=0.0, le=1.0)
        """Lower limit of β in (2)."""

    mean_probabilities: Tensor
    variance: Tensor

    def configure(self, model: nn.Module) -> None:
        """Adapt norm layers, with batch statistics."""
        adapt_layers(model, ["norm"])
        use_batch_stats(model, self.config.stored_stats_weight)

    def setup(self, train_data: Any) -> None:
        """Create the optimizer, the running mean of probabilities, the source and hidden parameters and v."""
        parameters = [value.detach() for value in self.trainable_parameters()]
        self.optimizer = make_optimizer(self.config.optimizer, self.trainable_parameters(), self.config.learning_rate)
        head = find_head(self.model)
        uniform = head.weight.new_full((head.out_features,), 1 / head.out_features)
        self.add_state("mean_probabilities", uniform, reduce="mean")
        self.add_state("variance", uniform.new_zeros(()))
        self.add_parameter_state("source", "hidden")
        torch._foreach_copy_(self.parameter_state("source"), parameters)
        torch._foreach_copy_(self.parameter_state("hidden"), parameters)

    def draw(self, images: Tensor) -> Plan:
        """Draw the augmentation."""
        return Plan(host=AugmentParams.from_generator(self.generator) if self.config.consistency else None)

    def update(self, images: Tensor, plan: Plan) -> StepOutput:
        """Predict, take one step on the weighted loss, and filter the parameters."""
        logits, loss, kept = weighted_consistency_loss(
            self.model, images, plan.host, self.mean_probabilities, self.config
        )
        minimize_step(loss, self.optimizer)
        beta = self._filter()
        return StepOutput(self._corrected(logits.detach()), {"kept": kept, "beta": beta})

    @torch.no_grad()
    def _filter(self) -> Tensor:
        """Filter the parameters and return β."""
        config, parameters = self.config, [value.detach() for value in self.trainable_parameters()]
        source, hidden = self.parameter_state("source"), self.parameter_state("hidden")
        q = config.process_noise * sum(value.numel() for value in parameters) / NORM_SCALARS_OF_VIT_B
        torch._foreach_lerp_(hidden, source, 1 - config.alpha)  # (1)
        self.variance.mul_(config.alpha**2).add_(q)
        beta = ((1 - q) / (self.variance + 1 - q)).clamp(min=config.least_beta)  # (2)
        beta = torch.where(beta > 0.9999, 1.0, beta)
        torch._foreach_mul_(hidden, beta)  # (3)
        torch._foreach_add_(hidden, torch._foreach_mul(parameters, 1 - beta))
        self.variance.mul_(beta)
        torch._foreach_lerp_(parameters, hidden, 1 - config.gamma)  # (4)
        return beta

    def forward_logits(self, images: Tensor) -> Tensor:
        """Return the logits of the batch with its prior correction."""
        return self._corrected(self.model(images))

    def _corrected(self, logits: Tensor) -> Tensor:
        return correct_prior(logits) if self.config.prior_correction else logits
