"""TENT: entropy minimisation over the norm layers' scale and shift (Wang et al., ICLR 2021), continual: never reset."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import PositiveFloat
from torch import Tensor, nn

from driftlaw.base import Adapter, BatchStatsSettings, Plan, StepOutput
from driftlaw.components.batch_norm import use_batch_stats
from driftlaw.components.losses import entropy
from driftlaw.components.optimizers import make_optimizer, minimize_step
from driftlaw.components.parameters import require_grad_, select_parameters
from driftlaw.errors import UsageError


class Tent(Adapter, name="tent"):
    """Minimises the mean entropy of its answers; the scale and shift of every norm layer move, nothing else.

    BatchNorm layers normalize with the batch at hand. One step a batch; the answer is from before it.

    **Departs from the paper:** nothing; like the continual benchmarks it is not reset between domains.
    """

    title = "TENT"
    paper = "Tent: fully test-time adaptation by entropy minimization, ICLR 2021"
    adapts = "scale and shift of norm layers"
    forward_cost, backward_cost = 1, 1

    class Config(BatchStatsSettings):
        """Settings of TENT."""

        learning_rate: PositiveFloat = 1e-3
        """Step size; 1e-3 for CIFAR with Adam, 2.5e-4 for ImageNet with SGD."""
        optimizer: Literal["adam", "sgd"] = "adam"
        """``adam`` (betas 0.9 and 0.999) or ``sgd`` (momentum 0.9, Nesterov)."""

    def configure(self, model: nn.Module) -> None:
        """Turn on the gradients of scale and shift, and batch statistics."""
        chosen = select_parameters(model, ["norm"])
        if not chosen:
            raise UsageError("tent learns the scale and shift of norm layers, and this model has none: take law")
        require_grad_(chosen.values())
        use_batch_stats(model, self.config.share_of_source)

    def setup(self, train_data: Any) -> None:
        """Make the optimizer."""
        learning = [value for value in self.model.parameters() if value.requires_grad]
        self.optimizer = make_optimizer(self.config.optimizer, learning, self.config.learning_rate)

    def update(self, images: Tensor, plan: Plan) -> StepOutput:
        """Answer the batch, then take one step down its entropy."""
        return self.replayed(self._descend, images)

    def _descend(self, images: Tensor) -> StepOutput:
        logits = self.model(images)
        minimize_step(entropy(logits), self.optimizer)
        return StepOutput(logits.detach())
