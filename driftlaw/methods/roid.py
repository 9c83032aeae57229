"""ROID (Marsden et al., WACV 2024) and CMF (Lee and Chang, ICLR 2024): weighted self-training with a pull."""

from typing import Any, Literal

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn

from driftlaw.base import Adapter, AugmentationSettings, Plan, StepOutput
from driftlaw.base.model_copy import num_classes
from driftlaw.components.augment import aligned, draw_augmentation
from driftlaw.components.batch_norm import use_batch_stats
from driftlaw.components.features import find_head
from driftlaw.components.losses import soft_likelihood_ratio, symmetric_cross_entropy
from driftlaw.components.optimizers import make_optimizer, minimize_step
from driftlaw.components.parameters import adapt_layers
from driftlaw.components.prior import correct_prior
from driftlaw.components.sample_weights import diversity_certainty_weights, update_mean_probabilities
from driftlaw.dense import pixels

NORM_SCALARS_OF_VIT_B = 38_400  # scale and shift of all LayerNorm layers, for which q of CMF was chosen


class Roid(Adapter, name="roid"):
    """ROID (Marsden et al., WACV 2024): weighted self-training over norm layers, and a pull to the source model.

    y are the logits of a batch x of n images and K classes, p = softmax(y), m the running mean of p, 1/K at first.

        (1)  d = 1 − cos(m, p), c = −H(p)              diversity and certainty, each scaled to [0, 1] over the batch
        (2)  w = exp(d·c/T), and 0 if d < mean d       weight of an image; T = 1/3
        (3)  m ← 0.9·m + 0.1·mean p
        (4)  SLR = −Σ_c p·log(p/(1 − p))               soft likelihood ratio, p limited to 0.99
        (5)  SCE = ½·CE(p, p̂) + ½·CE(p̂, p)             p̂: augmented images with w > 0
        (6)  L = Σ w·(SLR + SCE) / n                   one step over the scale and shift of norm layers
        (7)  θ ← 0.99·θ + 0.01·θ_source                weight ensembling
        (8)  y·K·π̃, π̃ = (π + s)/(1 + s·K), π = mean p, s = max(1/n, 1/K)/max π

    Gradients flow through both sides of (5) and not through w. BatchNorm layers use batch statistics; the second pass
    has statistics of its own. The returned logits are (8), from before the update. For logits per pixel, weights and n
    are of pixels, and the second pass leaves out images without a kept pixel.

    **Differences from the paper:** as in the released code, the prior correction multiplies logits and not
    probabilities. The factor K, which the released code lacks, keeps the scale of the logits and does not change the
    prediction. If all images have the same diversity or certainty, as in a batch of one image, the scaled values are 0
    (0/0 in the released code). The loss is divided by the number of images unless ``batch_size`` is given. The second
    pass runs on the kept images alone, whose number is read back to the host once per step; with ``consistency=False``
    nothing is read back.
    """

    title = "ROID"
    paper = (
        "Universal test-time adaptation through weight ensembling, diversity weighting, and prior correction, WACV 2024"
    )
    adapts = "scale and shift of norm layers"
    forward_cost, backward_cost = 1.5, 1.5

    class Config(AugmentationSettings):
        """Settings of ROID; the defaults are those for CIFAR-10-C."""

        learning_rate: PositiveFloat = 1e-3
        """Step size: 1e-3 with Adam for CIFAR, 2.5e-4 with SGD for ImageNet."""
        optimizer: Literal["adam", "sgd"] = "adam"
        """``adam`` (betas 0.9 and 0.999) or, on ImageNet-C, ``sgd`` (momentum 0.9, Nesterov)."""
        weighting: bool = True
        """Weigh images by certainty and diversity, and drop those of low diversity. If False, all weights are 1."""
        consistency: bool = True
        """Add the symmetric cross-entropy with the predictions for the augmented images."""
        prior_correction: bool = True
        """Multiply the returned logits by the smoothed class distribution of the batch."""
        temperature: PositiveFloat = 1 / 3
        """T of the weights exp(d·c/T)."""
        probability_momentum: float = Field(default=0.9, ge=0.0, le=1.0)
        """Weight of the old value in the running mean of predicted probabilities."""
        clip: float = Field(default=0.99, gt=0.0, lt=1.0)
        """Upper limit of a probability in the soft likelihood ratio; above it there is no gradient."""
        batch_size: PositiveInt | None = None
        """The sum of the weighted losses is divided by this number; None: by the number of images in the batch. The
        released code divides a smaller last batch by the full batch size, which matters for SGD: 64 on ImageNet-C."""
        source_pull: float = Field(default=0.01, ge=0.0, le=1.0)
        """Share of the source parameters (CMF: of the hidden parameters) in the parameters after each step."""

    mean_probabilities: Tensor

    def configure(self, model: nn.Module) -> None:
        """Adapt norm layers, with batch statistics."""
        adapt_layers(model, ["norm"])
        use_batch_stats(model, self.config.stored_stats_weight)

    def setup(self, train_data: Any) -> None:
        """Create the optimizer, the running mean of probabilities and a copy of the source parameters."""
        self.optimizer = make_optimizer(self.config.optimizer, self.trainable_parameters(), self.config.learning_rate)
        classes = num_classes(self.model) or find_head(self.model).out_features
        uniform = self.trainable_parameters()[0].new_full((classes,), 1 / classes)
        self.add_state("mean_probabilities", uniform, reduce="mean")
        self.add_parameter_state("source")
        torch._foreach_copy_(self.parameter_state("source"), [value.detach() for value in self.trainable_parameters()])

    def draw(self, images: Tensor) -> Plan:
        """Draw the augmentation."""
        if not self.config.consistency:
            return Plan()
        return Plan(host=draw_augmentation(images, self.generator, self.dense_augmentation(images), sharp=True))

    def update(self, images: Tensor, plan: Plan) -> StepOutput:
        """Predict, take one step on the weighted loss, and pull the parameters to the anchor."""
        config, logits = self.config, self.model(images)
        rows = pixels(logits)
        weights = torch.ones_like(rows[:, 0])
        if config.weighting:
            weights = diversity_certainty_weights(rows, self.mean_probabilities, config.temperature)  # (1), (2)
        update_mean_probabilities(self.mean_probabilities, rows, config.probability_momentum)  # (3)
        kept = weights > 0
        loss = (weights * soft_likelihood_ratio(rows, config.clip, reduction="none")).sum()  # (4)
        if config.consistency:
            of_images = kept.view(len(images), -1)
            shown = of_images.any(dim=1)  # images with a kept pixel
            augmented_logits, visible = aligned(self.model(plan.host(images[shown])), plan.host.align)
            again = of_images[shown].flatten()
            losses = symmetric_cross_entropy(rows[kept], pixels(augmented_logits)[again], "none")  # (5)
            factors = weights[kept] if visible is None else weights[kept] * visible[again]
            loss = loss + (factors * losses).sum()
        count = (config.batch_size or len(images)) * (len(rows) // len(images))
        minimize_step(loss / count, self.optimizer)  # (6)
        parameters = [value.detach() for value in self.trainable_parameters()]
        torch._foreach_lerp_(parameters, self.anchor(parameters), config.source_pull)  # (7)
        logits = correct_prior(logits.detach()) if config.prior_correction else logits.detach()  # (8)
        return StepOutput(logits, {"kept": kept.float().mean()})

    def anchor(self, parameters: list[Tensor]) -> list[Tensor]:
        """Return what the updated parameters are pulled to: the source parameters."""
        return self.parameter_state("source")

    def forward_logits(self, images: Tensor) -> Tensor:
        """Return the logits of the batch with its prior correction."""
        logits: Tensor = self.model(images)
        return correct_prior(logits) if self.config.prior_correction else logits


class Cmf(Roid, name="cmf"):
    """CMF takes the step of ROID, and pulls the parameters to filtered parameters instead of the source parameters.

    h are hidden parameters, θ_source at first, and v their variance, 0 at first. In place of ROID's (7), with
    q = 0.005 · number of learnt scalars / 38,400:

        (7a)  h ← α·h + (1 − α)·θ_source, v ← α²·v + q    prediction of a Kalman filter; α = 0.99
        (7b)  β = (1 − q)/(v + 1 − q), at least 0.89, and 1 if above 0.9999
        (7c)  h ← β·h + (1 − β)·θ, v ← β·v                update with the adapted parameters
        (7d)  θ ← 0.99·θ + 0.01·h

    **Differences from the paper:** those of ROID. Only learnt parameters are filtered: all others are equal in h, θ
    and θ_source. ``reset`` also clears v, which the released code does not.
    """

    title = "CMF"
    paper = "Continual momentum filtering on parameter space for online test-time adaptation, ICLR 2024"

    class Config(Roid.Config):
        """Settings of CMF; those of the loss are ROID's."""

        alpha: float = Field(default=0.99, ge=0.0, le=1.0)
        """α of (7a), weight of the hidden parameters beside the source parameters."""
        process_noise: PositiveFloat = 0.005
        """q for a model with 38,400 learnt scalars; q is proportional to their number."""
        least_beta: float = Field(default=0.89, ge=0.0, le=1.0)
        """Lower limit of β in (7b)."""

    variance: Tensor

    def setup(self, train_data: Any) -> None:
        """Create the state of ROID, the hidden parameters and their variance."""
        super().setup(train_data)
        self.add_state("variance", self.mean_probabilities.new_zeros(()))
        self.add_parameter_state("hidden")
        torch._foreach_copy_(self.parameter_state("hidden"), self.parameter_state("source"))

    def anchor(self, parameters: list[Tensor]) -> list[Tensor]:
        """Filter the hidden parameters and return them."""
        hidden = self.parameter_state("hidden")
        q = self.config.process_noise * sum(value.numel() for value in parameters) / NORM_SCALARS_OF_VIT_B
        torch._foreach_lerp_(hidden, self.parameter_state("source"), 1 - self.config.alpha)  # (7a)
        self.variance.mul_(self.config.alpha**2).add_(q)
        beta = ((1 - q) / (self.variance + 1 - q)).clamp(min=self.config.least_beta)
        beta = torch.where(beta > 0.9999, 1.0, beta)  # (7b)
        torch._foreach_mul_(hidden, beta)  # (7c)
        torch._foreach_add_(hidden, torch._foreach_mul(parameters, 1 - beta))
        self.variance.mul_(beta)
        return hidden
