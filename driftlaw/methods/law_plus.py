"""LAW+: LAW's layer weights with weighted images, a bounded loss and a pull to the source model."""

import math
from functools import partial
from typing import Any, Literal

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor, nn

from driftlaw.base import Adapter, AugmentationSettings, Plan, StepOutput
from driftlaw.base.model_copy import find_output_layer, num_classes
from driftlaw.components import layer_rates
from driftlaw.components.augment import aligned, draw_augmentation
from driftlaw.components.batch_norm import use_batch_stats
from driftlaw.components.features import find_head
from driftlaw.components.fisher import mean_squares, score, tensor_sizes
from driftlaw.components.losses import entropy, soft_cross_entropy, soft_likelihood_ratio, symmetric_cross_entropy
from driftlaw.components.parameters import adapt_layers
from driftlaw.components.prior import correct_prior
from driftlaw.components.sample_weights import diversity_and_certainty, update_mean_probabilities
from driftlaw.dense import pixels


class LawPlus(Adapter, name="law_plus"):
    """LAW+: entropy-like minimisation with a learning rate per layer that stays near the source model.

    The first two thirds of the convolutions and norm layers are adapted, counted from the input. Updates near the
    output make predictions certain without making them right, and ruin the model if domains are mixed. θˡ is an adapted
    parameter tensor and sˡ the root mean square of its entries in the source model, so that rates do not depend on the
    scale of a network. y are the logits of a batch x of n images and K classes, p = softmax(y), p̂ those of the
    augmented images, m the running mean of p, 1/K at first.

        (1)  Iˡ ← γ·Iˡ + mean of (∂ log p(x)/∂θˡ)²     LAW's Fisher information, on every k-th batch
        (2)  w̄ˡ = ((wˡ − min w)/(max w − min w + ε))^τ  LAW's layer weight, wˡ = sˡ·√Iˡ
        (3)  d = 1 − cos(m, p), c = −H(p)              diversity and certainty, each scaled to [0, 1] over the batch
        (4)  u = exp(d·c/T) for the κ·n images of highest d, and 0 for the others
        (5)  m ← 0.9·m + 0.1·mean p
        (6)  L = Σ u·(SLR(p) + λ·CE(p, p̂)) / n         soft likelihood ratio; LAW's consistency
        (7)  θˡ ← θˡ − η·w̄ˡ·sˡ·g/(|g| + ε), g = ∂L/∂θˡ  LAW's step
        (8)  θˡ ← θˡ + α·(θˡ_source − θˡ)               anchor
        (9)  y·K·π̃                                     prior correction, as in ROID

    (1), (2), (7) and the consistency are LAW's. The other parts of (3) to (6), (8) and (9) are ROID's (Marsden et al.,
    WACV 2024), but a fixed share κ of the images is kept, so that no value is read back to the host. The augmented pass
    runs on the kept images alone. Every ingredient is a setting. No training data is needed. The linear head is frozen.
    Logits are from before the update. For logits per pixel, (3) to (6) and (9) are of pixels, and all images are
    augmented.

    η, α, the adapted share and the kind of consistency were selected on held-out corruptions, one after the other,
    mixed, and with classes in runs, with the embedded network.

    **Differences from the paper:** none; there is no paper.
    """

    title = "LAW+"
    adapts = "convolutions and norm layers in the first two thirds of the model, each tensor at its own rate"
    forward_cost, backward_cost = 1.5, 2.8  # half of the images are augmented; scores on every tenth batch
    fisher: Tensor
    mean_probabilities: Tensor
    scales: Tensor

    class Config(AugmentationSettings):
        """Settings of LAW+."""

        learning_rate: PositiveFloat | None = None
        """η, the change of an entry of the most important tensor in one step, relative to the root mean square of the
        tensor. Default: 0.03, or 0.001 if the last layer is a convolution, as in networks with logits per pixel. The
        second value is not selected yet."""
        tau: NonNegativeFloat = 1.0
        """τ, the exponent of the scaled importance. With 0 all tensors have the same rate."""
        adapted_share: float = Field(default=0.67, gt=0.0, le=1.0)
        """Share of the parameter tensors of convolutions and norm layers that is adapted, counted from the input. The
        layers behind them keep the values of the source model."""
        fisher_decay: float = Field(default=1.0, ge=0.0, le=1.0)
        """γ."""
        fisher_every: PositiveInt = 10
        """k: the Fisher information is computed on every k-th batch, after the first ``fisher_settling`` batches."""
        fisher_settling: PositiveInt = 20
        """Number of first batches on which the Fisher information is always computed."""
        weighting: bool = True
        """Weigh images by certainty and diversity. If False, all kept images have weight 1."""
        temperature: PositiveFloat = 1 / 3
        """T."""
        probability_momentum: float = Field(default=0.9, ge=0.0, le=1.0)
        """Weight of the old m in (5)."""
        kept_share: float = Field(default=0.5, gt=0.0, le=1.0)
        """κ, the share of the images that is kept. 1 keeps all."""
        loss: Literal["slr", "entropy"] = "slr"
        """First term of L: the soft likelihood ratio, or the entropy."""
        clip: float = Field(default=0.99, gt=0.0, lt=1.0)
        """Upper limit of a probability in the soft likelihood ratio; above it there is no gradient."""
        consistency_weight: NonNegativeFloat = 1.0
        """λ. With 0 there is no augmented pass."""
        symmetric: bool = False
        """Symmetric consistency, as in ROID. If False, the cross-entropy from images to augmented images, as in LAW."""
        anchor: float = Field(default=0.005, ge=0.0, le=1.0)
        """α, the share of the way back to the source model after every step."""
        prior_correction: bool = True
        """Multiply the returned logits by the smoothed class distribution of the batch."""

    @staticmethod
    def default_settings(model: nn.Module) -> dict[str, Any]:
        """Return η for a model: updates on a few frames must be smaller."""
        is_dense = isinstance(find_output_layer(model), nn.Conv2d | nn.ConvTranspose2d)
        return {"learning_rate": 0.001 if is_dense else 0.03}

    def configure(self, model: nn.Module) -> None:
        """Adapt convolutions and norm layers, but not those near the output, with batch statistics."""
        adapt_layers(model, ["conv", "norm"])
        trainable = [value for value in model.parameters() if value.requires_grad]
        for value in trainable[math.ceil(self.config.adapted_share * len(trainable)) :]:
            value.requires_grad_(False)
        use_batch_stats(model, self.config.stored_stats_weight)

    def setup(self, train_data: Any) -> None:
        """Create the Fisher information, the mean of probabilities, the source parameters and their scales."""
        parameters = [value.detach() for value in self.trainable_parameters()]
        sizes = tensor_sizes(parameters)
        self.groups = layer_rates.ParameterGroups(self.trainable_names, sizes, "tensor")
        self.add_state("fisher", torch.zeros_like(sizes), reduce="mean")
        classes = num_classes(self.model) or find_head(self.model).out_features
        self.add_state("mean_probabilities", parameters[0].new_full((classes,), 1 / classes), reduce="mean")
        self.add_parameter_state("source")
        torch._foreach_copy_(self.parameter_state("source"), parameters)
        # A tensor that starts at 0, such as a shift, must be able to move.
        self.add_state("scales", mean_squares(parameters, sizes).sqrt().clamp(min=1e-3))

    def step_kind(self) -> str:
        """Return ``scored`` if the next step computes the Fisher information, else ``unscored``."""
        after = self.steps - self.config.fisher_settling
        return "unscored" if after > 0 and after % self.config.fisher_every else "scored"

    def diagnostic_labels(self) -> dict[str, list[str]]:
        """Return the names of the tensors."""
        return {"layer_weights": self.groups.names}

    def draw(self, images: Tensor) -> Plan:
        """Choose whether the step computes the Fisher information, and draw the augmentation."""
        second = draw_augmentation(images, self.generator, self.dense_augmentation(images))
        return Plan(self.step_kind(), augment=second if self.config.consistency_weight else None)

    def update(self, images: Tensor, plan: Plan) -> StepOutput:
        """Predict, weigh tensors and images, take one step, and pull the parameters to the source model."""
        config, parameters, logits = self.config, self.trainable_parameters(), self.model(images)
        if plan.kind == "scored":
            information = mean_squares(score(logits, parameters), self.groups.sizes)
            self.fisher.mul_(config.fisher_decay).add_(information)  # (1)
        layer_weights = layer_rates.exponential_min_max(self.scales * self.fisher.sqrt(), config.tau)  # (2)
        loss = self._loss(logits, images, plan)
        update_mean_probabilities(self.mean_probabilities, logits, config.probability_momentum)  # (5)
        gradients = list(torch.autograd.grad(loss, parameters, materialize_grads=True))
        values = [value.detach() for value in parameters]
        layer_rates.first_adam_step(values, gradients, config.learning_rate * layer_weights * self.scales)  # (7)
        torch._foreach_lerp_(values, self.parameter_state("source"), config.anchor)  # (8)
        logits = correct_prior(logits.detach()) if config.prior_correction else logits.detach()  # (9)
        return StepOutput(logits, {"layer_weights": layer_weights})

    def _loss(self, logits: Tensor, images: Tensor, plan: Plan) -> Tensor:
        config, rows = self.config, pixels(logits)
        diversity, certainty = diversity_and_certainty(rows, self.mean_probabilities)  # (3)
        weights = (diversity * certainty / config.temperature).exp() if config.weighting else torch.ones_like(diversity)
        kept = diversity.topk(math.ceil(config.kept_share * len(rows))).indices  # (4)
        first = entropy if config.loss == "entropy" else partial(soft_likelihood_ratio, clip=config.clip)
        losses = first(rows[kept], reduction="none")
        if plan.augment is not None:
            by_pixel = len(rows) > len(images)  # then every image has kept pixels
            augmented = plan.augment(images) if by_pixel else plan.augment(images)[kept]
            augmented_logits, visible = aligned(self.model(augmented), plan.align)
            others = pixels(augmented_logits)[kept] if by_pixel else pixels(augmented_logits)
            compare = symmetric_cross_entropy if config.symmetric else soft_cross_entropy
            disagreement = config.consistency_weight * compare(rows[kept], others, reduction="none")
            losses = losses + (disagreement if visible is None else disagreement * visible[kept])
        return (weights[kept] * losses).sum() / len(rows)  # (6)

    def forward_logits(self, images: Tensor) -> Tensor:
        """Return the logits of the batch with its prior correction."""
        logits: Tensor = self.model(images)
        return correct_prior(logits) if self.config.prior_correction else logits
