"""Surgical tuning: TENT, or full tuning, in a part of the network (Park et al., WACV 2024, Figure 1a)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import NonNegativeInt, PositiveFloat
from torch import Tensor, nn

from driftlaw.base import Adapter, BatchStatsSettings, Plan, StepOutput
from driftlaw.components.batch_norm import use_batch_stats
from driftlaw.components.losses import entropy
from driftlaw.components.optimizers import make_optimizer, minimize_step
from driftlaw.components.parameters import require_grad_, select_parameters
from driftlaw.components.stages import model_stages, select_stages
from driftlaw.errors import UsageError


class Surgical(Adapter, name="surgical"):
    """Minimises the mean entropy of its answers; only a part of the network moves, and the linear head never.

    The part is one stage, the stages from the input up to one, or those from one to the output. In it the scale and
    shift of norm layers learn, as in TENT, or every parameter. BatchNorm layers normalize with the batch at hand, in
    the whole network. One step a batch; the answer is from before it.

    **Departs from the paper:** the figure does not say which rate full tuning had; it shares TENT's unless set. The
    declared cost is that of the default part: the later a part begins, the less its backward pass costs.
    """

    title = "Surgical"
    paper = "Layer-wise auto-weighting for non-stationary test-time adaptation, WACV 2024, Figure 1a"
    adapts = "a part of the network: scale and shift of its norm layers, or all of it"
    forward_cost, backward_cost = 1, 1

    class Config(BatchStatsSettings):
        """Settings of surgical tuning; the defaults tune the norm layers of the first stage after the stem."""

        part: Literal["stage", "up_to", "from"] = "up_to"
        """What learns: one ``stage``, all stages from the input ``up_to`` it, or all ``from`` it to the output."""
        stage: NonNegativeInt = 1
        """Number of that stage; 0 is the stem, 1 the first stage after it."""
        tuned: Literal["norm", "all"] = "norm"
        """What learns there: the scale and shift of ``norm`` layers, or ``all`` parameters."""
        learning_rate: PositiveFloat = 1e-3
        """Step size; TENT's: 1e-3 for CIFAR with Adam, 2.5e-4 for ImageNet with SGD."""
        optimizer: Literal["adam", "sgd"] = "adam"
        """``adam`` (betas 0.9 and 0.999) or ``sgd`` (momentum 0.9, Nesterov)."""

    def configure(self, model: nn.Module) -> None:
        """Turn on the gradients of the part, and batch statistics everywhere."""
        part = select_stages(model_stages(model), self.config.part, self.config.stage)
        able = dict(model.named_parameters()) if self.config.tuned == "all" else select_parameters(model, ["norm"])
        chosen = [able[name] for names in part.values() for name in names if name in able]
        if not chosen:
            wanted = "parameters" if self.config.tuned == "all" else "norm layers"
            remedy = "take another part" if self.config.tuned == "all" else "take another part, or tuned = «all»"
            raise UsageError(f"surgical is to learn in {', '.join(part)}, and there are no {wanted} there: {remedy}")
        require_grad_(chosen)
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
