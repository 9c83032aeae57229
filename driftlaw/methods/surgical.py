"""Surgical tuning: TENT, or full fine-tuning, in selected stages (Park et al., WACV 2024, Figure 1a)."""

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
    """Surgical tuning minimises the mean entropy of its predictions over a part of the network.

    The part is one stage, all stages up to one, or all from one on; never the linear head. In it, the scale and shift
    of norm layers are adapted, as in TENT, or all parameters. All BatchNorm layers of the network use batch statistics.
    There is one step per batch. Logits are from before the update.

    **Differences from the paper:** the figure does not give the learning rate of full tuning; the default is TENT's.
    The declared cost is that of the default part: the later a part begins, the cheaper its backward pass.
    """

    title = "Surgical"
    paper = "Layer-wise auto-weighting for non-stationary test-time adaptation, WACV 2024, Figure 1a"
    adapts = "a part of the network: scale and shift of its norm layers, or all of it"
    forward_cost, backward_cost = 1, 1

    class Config(BatchStatsSettings):
        """Settings of surgical tuning; the defaults adapt the norm layers up to the first stage after the stem."""

        part: Literal["stage", "up_to", "from"] = "up_to"
        """Which part: one ``stage``, all stages from the input ``up_to`` it, or all ``from`` it to the output."""
        stage: NonNegativeInt = 1
        """Number of that stage; 0 is the stem."""
        tuned: Literal["norm", "all"] = "norm"
        """What is adapted there: the scale and shift of ``norm`` layers, or ``all`` parameters."""
        learning_rate: PositiveFloat = 1e-3
        """Step size, as TENT's: 1e-3 with Adam for CIFAR, 2.5e-4 with SGD for ImageNet."""
        optimizer: Literal["adam", "sgd"] = "adam"
        """``adam`` (betas 0.9 and 0.999) or ``sgd`` (momentum 0.9, Nesterov)."""

    def configure(self, model: nn.Module) -> None:
        """Adapt the selected part, with batch statistics everywhere."""
        part = select_stages(model_stages(model), self.config.part, self.config.stage)
        every = self.config.tuned == "all"
        candidates = dict(model.named_parameters()) if every else select_parameters(model, ["norm"])
        chosen = [candidates[name] for names in part.values() for name in names if name in candidates]
        if not chosen:
            kind, remedy = ("parameters", "") if every else ("norm layers", ", or set tuned='all'")
            raise UsageError(f"The selected part ({', '.join(part)}) has no {kind}. Select another part{remedy}.")
        require_grad_(chosen)
        use_batch_stats(model, self.config.stored_stats_weight)

    def setup(self, train_data: Any) -> None:
        """Create the optimizer."""
        self.optimizer = make_optimizer(self.config.optimizer, self.trainable_parameters(), self.config.learning_rate)

    def update(self, images: Tensor, plan: Plan) -> StepOutput:
        """Predict the batch, then minimise its entropy by one step."""
        logits = self.model(images)
        minimize_step(entropy(logits), self.optimizer)
        return StepOutput(logits.detach())
