"""TENT: entropy minimisation over the scale and shift of norm layers (Wang et al., ICLR 2021)."""

from typing import Any, Literal

from pydantic import PositiveFloat
from torch import Tensor, nn

from driftlaw.base import Adapter, BatchStatsSettings, Plan, StepOutput
from driftlaw.components.batch_norm import use_batch_stats
from driftlaw.components.losses import entropy
from driftlaw.components.optimizers import make_optimizer, minimize_step
from driftlaw.components.parameters import adapt_layers


class Tent(Adapter, name="tent"):
    """TENT minimises the mean entropy of its predictions over the scale and shift of all norm layers.

    BatchNorm layers use batch statistics. There is one step per batch. Logits are from before the update.

    **Differences from the paper:** it is not reset between domains, as in the continual benchmarks.
    """

    title = "TENT"
    paper = "Tent: fully test-time adaptation by entropy minimization, ICLR 2021"
    adapts = "scale and shift of norm layers"
    forward_cost, backward_cost = 1, 1

    class Config(BatchStatsSettings):
        """Settings of TENT."""

        learning_rate: PositiveFloat = 1e-3
        """Step size: 1e-3 with Adam for CIFAR, 2.5e-4 with SGD for ImageNet."""
        optimizer: Literal["adam", "sgd"] = "adam"
        """``adam`` (betas 0.9 and 0.999) or ``sgd`` (momentum 0.9, Nesterov)."""

    def configure(self, model: nn.Module) -> None:
        """Adapt norm layers, with batch statistics."""
        adapt_layers(model, ["norm"])
        use_batch_stats(model, self.config.stored_stats_weight)

    def setup(self, train_data: Any) -> None:
        """Create the optimizer."""
        self.optimizer = make_optimizer(self.config.optimizer, self.trainable_parameters(), self.config.learning_rate)

    def update(self, images: Tensor, plan: Plan) -> StepOutput:
        """Predict the batch, then minimise its entropy by one step."""
        logits = self.model(images)
        minimize_step(entropy(logits), self.optimizer)
        return StepOutput(logits.detach())
