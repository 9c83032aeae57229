"""ROID: weighted self-training with weight ensembling and prior correction (Marsden et al., WACV 2024)."""

from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from driftlaw.base import Adapter, BatchStatsSettings, Plan, StepOutput
from driftlaw.components.augment import AugmentParams
from driftlaw.components.batch_norm import use_batch_stats
from driftlaw.components.features import find_head
from driftlaw.components.optimizers import make_optimizer, minimize_step
from driftlaw.components.parameters import adapt_layers
from driftlaw.components.prior import correct_prior
from driftlaw.components.weighted_consistency import WeightedConsistencySettings, weighted_consistency_loss


class Roid(Adapter, name="roid"):
    """ROID (Marsden et al., WACV 2024): weighted self-training over norm layers, and a pull to the source model.

    y are the logits of a batch x of n images and K classes, p = softmax(y), m the running mean of p, 1/K at first.

        (1)  d = 1 − cos(m, p), c = −H(p)     diversity and certainty, each scaled to [0, 1] over the batch
        (2)  w = exp(d·c/T), and 0 if d < mean d       weight of an image; T = 1/3
        (3)  m ← 0.9·m + 0.1·mean p
        (4)  SLR = −Σ_c p·log(p/(1 − p))               soft likelihood ratio, p limited to 0.99
        (5)  SCE = ½·CE(p, p̂) + ½·CE(p̂, p)             p̂: augmented images with w > 0
        (6)  L = Σ w·(SLR + SCE) / n                    one step over the scale and shift of norm layers
        (7)  θ ← 0.99·θ + 0.01·θ_source                 weight ensembling
        (8)  y·K·π̃, π̃ = (π + s)/(1 + s·K), π = mean p, s = max(1/n, 1/K)/max π

    Gradients flow through both sides of (5) and not through w. BatchNorm layers use batch statistics; the second pass
    has statistics of its own. The returned logits are (8), from before the update. For classification, (n, classes).

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

    class Config(WeightedConsistencySettings, BatchStatsSettings):
        """Settings of ROID."""

        source_pull: float = Field(default=0.01, ge=0.0, le=1.0)
        """Share of the source parameters in the weights after each step (7)."""

    mean_probabilities: Tensor

    def configure(self, model: nn.Module) -> None:
        """Adapt norm layers, with batch statistics."""
        adapt_layers(model, ["norm"])
        use_batch_stats(model, self.config.stored_stats_weight)

    def setup(self, train_data: Any) -> None:
        """Create the optimizer, the running mean of probabilities and a copy of the source parameters."""
        self.optimizer = make_optimizer(self.config.optimizer, self.trainable_parameters(), self.config.learning_rate)
        head = find_head(self.model)
        uniform = head.weight.new_full((head.out_features,), 1 / head.out_features)
        self.add_state("mean_probabilities", uniform, reduce="mean")
        self.add_parameter_state("source")
        torch._foreach_copy_(self.parameter_state("source"), [value.detach() for value in self.trainable_parameters()])

    def draw(self, images: Tensor) -> Plan:
        """Draw the augmentation."""
        return Plan(host=AugmentParams.from_generator(self.generator) if self.config.consistency else None)

    def update(self, images: Tensor, plan: Plan) -> StepOutput:
        """Predict, take one step on the weighted loss, and pull the parameters to the source."""
        logits, loss, kept = weighted_consistency_loss(
            self.model, images, plan.host, self.mean_probabilities, self.config
        )
        minimize_step(loss, self.optimizer)
        parameters: list[Tensor] = [*self.trainable_parameters()]
        with torch.no_grad():
            torch._foreach_lerp_(parameters, self.parameter_state("source"), self.config.source_pull)
        return StepOutput(self._corrected(logits.detach()), {"kept": kept})

    def forward_logits(self, images: Tensor) -> Tensor:
        """Return the logits of the batch with its prior correction."""
        return self._corrected(self.model(images))

    def _corrected(self, logits: Tensor) -> Tensor:
        return correct_prior(logits) if self.config.prior_correction else logits
