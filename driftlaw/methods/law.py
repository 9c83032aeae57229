"""LAW: Layer-wise Auto-Weighting for non-stationary test-time adaptation (Park et al., WACV 2024)."""

from functools import partial
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import Tensor, nn

from driftlaw.base import Adapter, Plan, StepOutput
from driftlaw.components import layer_rates
from driftlaw.components.augment import Align, aligned_mean, draw_augmentation
from driftlaw.components.batch_norm import use_batch_stats
from driftlaw.components.fisher import mean_squares, per_sample_fisher, score, tensor_sizes
from driftlaw.components.losses import entropy, soft_cross_entropy
from driftlaw.components.parameters import adapt_layers
from driftlaw.methods import law_defaults
from driftlaw.methods.law_schedule import ScheduleSettings, check_settings, choose_active, kind_of_step, select


class Law(Adapter, name="law"):
    """Layer-wise Auto-Weighting (Park et al., WACV 2024): entropy minimisation with a learning rate per layer.

    θˡ are the parameters of group l, y and ŷ the logits of the batch x and of the augmented batch, p = softmax(y).

        (1)  θˡ ← θˡ − η·∂L/∂θˡ           gradient step with one rate for all groups
        (2)  sˡ = ∂ log p(x) / ∂θˡ        score at the predicted labels
        (3)  Iˡ = E[sˡ·sˡᵀ]                Fisher information of the batch; only its diagonal is used
        (4)  Ĩˡ ← γ·Ĩˡ + Iˡ                accumulated; γ = 1 in the paper
        (5)  wˡ = √Tr(Ĩˡ)                  layer importance; by default with the mean in place of the trace
        (6)  ηˡ = η·wˡ                     unbounded; replaced by (7)
        (7)  ηˡ = η·w̄ˡ, w̄ˡ = ((wˡ − min w) / (max w − min w + ε))^τ
        (8)  L_con = −E[Σ_c p·log softmax(ŷ)]
        (9)  L = entropy(y) + λ·L_con
        (10) θˡ ← θˡ − ηˡ·Δθˡ             Δθˡ: Adam's direction for ∂L/∂θˡ

    The group with the highest Fisher information is adapted at the full rate, the one with the lowest is frozen. The
    linear head is frozen unless ``layers`` names it. Logits are from before the update.

    **Differences from the paper:** the defaults follow the released code, which produced the published numbers: one
    group per tensor (``grouping``), mean instead of trace (``reduction``), the square of the batch-mean gradient
    (``fisher``), moments reset at every batch (``moments``), gradients also through the target of Eq. 8
    (``detach_target``). Losses are means over the batch. The first release also squared a stale gradient (``compat``).
    """

    title = "LAW"
    paper = "Layer-wise auto-weighting for non-stationary test-time adaptation, WACV 2024"
    adapts = "convolutions and norm layers, each tensor at its own rate"
    forward_cost, backward_cost = 2, 6
    default_settings = staticmethod(law_defaults.default_settings)
    fisher: Tensor
    moving: Tensor

    class Config(ScheduleSettings):
        """Settings of LAW; η, τ and λ fit the network, the others are the paper's for CIFAR-10-C."""

        omit_if_default: ClassVar[frozenset[str]] = ScheduleSettings.omit_if_default | {"layers", "more_facts"}

        learning_rate: PositiveFloat | None = None
        """η of Eq. 1, rate of the most important group: 1e-3, 5e-5, 2e-4 for 10, 100, 1000 classes if None."""
        fisher: Literal["batch", "per_sample"] = "batch"
        """Eq. 3: square of the ``batch``-mean score, or mean of ``per_sample`` squares with fixed batch statistics."""
        compat: Literal["none", "released_2024"] = "none"
        """``released_2024`` adds the previous step's gradient to the score, as the first release did."""
        fisher_decay: float = Field(default=1.0, ge=0.0, le=1.0)
        """γ of Eq. 4 (Appendix B.1)."""
        grouping: Literal["tensor", "module", "block"] = "tensor"
        """Eq. 5: what a group is, a parameter ``tensor``, the tensors of a ``module``, or of a ``block``."""
        reduction: Literal["mean", "trace"] = "mean"
        """Eq. 5: how the Fisher diagonal of a group becomes one number. ``trace`` favours large convolutions."""
        tau: NonNegativeFloat | None = None
        """τ of Eq. 7, the exponent of the scaled importance: 1.0, 0.6, 1.0 if None."""
        detach_target: bool = False
        """Whether the target of Eq. 8 is a constant."""
        consistency_weight: NonNegativeFloat | None = None
        """λ of Eq. 9, 0.01 × the number of classes: 0.1, 1, 10 if None."""
        moments: Literal["fresh", "kept"] = "fresh"
        """Eq. 10: Adam's moments are reset at every batch, so that a step is about η·w̄·sign(g), or ``kept``."""
        layers: tuple[Literal["conv", "norm", "linear", "head"], ...] = Field(default=("conv", "norm"), min_length=1)
        """Which layers are adapted. The last linear layer, the ``head``, is adapted only if it is named."""
        more_facts: bool = False
        """Also return the diagnostic ``layer_sharpness``, the importance w of Eq. 5."""

    def configure(self, model: nn.Module) -> None:
        """Adapt the layers of the settings, with batch statistics."""
        adapt_layers(model, self.config.layers)
        use_batch_stats(model, self.config.stored_stats_weight)

    def setup(self, train_data: Any) -> None:
        """Create the accumulated Fisher information, one number per tensor, and what the settings keep."""
        check_settings(self.config)
        entries = tensor_sizes(self.trainable_parameters())
        self.groups = layer_rates.ParameterGroups(self.trainable_names, entries, self.config.grouping)
        self.add_state("fisher", torch.zeros_like(entries), reduce="mean")
        self.add_state("moving", torch.ones_like(entries, dtype=torch.bool))  # tensors that unscored batches update
        self.add_parameter_state(*(["first", "second"] if self.config.moments == "kept" else []))
        self.add_parameter_state(*(["stale"] if self.config.compat == "released_2024" else []))
        self.independent_passes = self.config.fisher == "batch"  # per-sample scores change norm layers meanwhile

    def step_kind(self) -> str:
        """Return ``scored``, ``unscored`` or ``entropy``: what the next step computes."""
        return kind_of_step(self.config, self.steps)

    def diagnostic_labels(self) -> dict[str, list[str]]:
        """Return the names of the groups."""
        return dict.fromkeys(["layer_weights", "layer_sharpness"][: 1 + self.config.more_facts], self.groups.names)

    def draw(self, images: Tensor) -> Plan:
        """Choose the kind of step and the tensors that it updates, and draw the augmentation."""
        kind, skip = self.step_kind(), self.config.skip_share
        active = choose_active(kind, skip, self.moving, self.groups, self._layer_weights, self._host_cache)
        dense = self.dense_augmentation(images)
        second = None if kind == "entropy" else draw_augmentation(images, self.generator, dense)
        return Plan(kind, active, second, host=self.steps + 1 if self.config.moments == "kept" else None)

    def _fisher_diagonal(self, images: Tensor, logits: Tensor, parameters: list[Tensor]) -> Tensor:
        if self.config.fisher == "per_sample":
            return per_sample_fisher(self.model, dict(zip(self.trainable_names, parameters, strict=True)), images)
        scores = score(logits, parameters)  # Eq. 2
        if stale := self.parameter_state("stale"):
            scores = list(torch._foreach_add(scores, stale))
        return mean_squares(scores, self.groups.sizes)  # Eq. 3

    def _layer_weights(self, information: Tensor | None = None) -> tuple[Tensor, Tensor]:
        if information is not None:
            self.fisher.mul_(self.config.fisher_decay).add_(information)  # Eq. 4
        importance = self.groups.importance(self.fisher, self.config.reduction)  # Eq. 5
        return layer_rates.exponential_min_max(importance, self.config.tau), importance  # Eq. 7 in place of Eq. 6

    def _loss(self, align: Align | None, logits: Tensor, augmented_logits: Tensor | None) -> Tensor:
        if augmented_logits is None:
            return entropy(logits)
        target = logits.detach() if self.config.detach_target else logits
        consistency = aligned_mean(soft_cross_entropy, target, augmented_logits, align)  # Eq. 8
        weighted: Tensor = self.config.consistency_weight * consistency
        return entropy(logits) + weighted  # Eq. 9

    def update(self, images: Tensor, plan: Plan) -> StepOutput:
        """Predict, weigh the groups by their Fisher information, and take one step."""
        parameters = select(self.trainable_parameters(), plan.active)
        probe = partial(self._fisher_diagonal, images) if plan.kind == "scored" else None
        result = self.two_pass(parameters, images, plan.augment, partial(self._loss, plan.align), probe)
        weights, importance = self._layer_weights(result.probe)
        rates = select(self.config.learning_rate * weights[self.groups.group_index], plan.active)
        moments = self.parameter_state("first"), self.parameter_state("second")
        layer_rates.adam_update(parameters, result.summands, rates, *moments, plan.host)  # Eq. 10 in place of Eq. 1
        if stale := self.parameter_state("stale"):
            torch._foreach_copy_(stale, layer_rates.sum_gradients(parameters, result.summands))
        diagnostics = {"layer_weights": weights, "layer_sharpness": importance}
        return StepOutput(result.logits, {name: diagnostics[name] for name in self.diagnostic_labels()})
