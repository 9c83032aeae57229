"""TENT: entropy minimisation over the norm layers' scale and shift (Wang et al., ICLR 2021), continual: never reset."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import PositiveFloat
from torch import Tensor, nn

from driftlaw.contract import Adapter, Output, SmallBatches
from driftlaw.errors import UsageError
from driftlaw.ingredients.losses import entropy
from driftlaw.ingredients.normalisation import use_batch_statistics
from driftlaw.ingredients.optimizers import make_optimizer, step_down
from driftlaw.ingredients.parameters import let_learn, select_parameters


class Tent(Adapter, name="tent"):
    """Minimises the mean entropy of its answers; the scale and shift of every norm layer move, nothing else.

    BatchNorm layers normalise with the batch at hand. One step a batch; the answer is from before it.

    **Departs from the paper:** nothing; like the continual benchmarks it is not reset between domains.
    """

    title = "TENT"
    paper = "Tent: fully test-time adaptation by entropy minimization, ICLR 2021"
    learns = "scale and shift of norm layers"
    forward_units, backward_units = 1, 1

    class Config(SmallBatches):
        """Settings of TENT."""

        learning_rate: PositiveFloat = 1e-3
        """Step size; 1e-3 for CIFAR with Adam, 2.5e-4 for ImageNet with SGD."""
        optimizer: Literal["adam", "sgd"] = "adam"
        """``adam`` (betas 0.9 and 0.999) or ``sgd`` (momentum 0.9, Nesterov)."""

    def prepare(self, model: nn.Module) -> nn.Module:
        """Turn on the gradients of scale and shift, and batch statistics."""
        chosen = select_parameters(model, ["norm"])
        if not chosen:
            raise UsageError("tent learns the scale and shift of norm layers, and this model has none: take law")
        let_learn(chosen.values())
        use_batch_statistics(model, self.config.share_of_source)
        return model

    def build(self, source: Any) -> None:
        """Make the optimizer."""
        learning = [value for value in self.model.parameters() if value.requires_grad]
        self.optimizer = make_optimizer(self.config.optimizer, learning, self.config.learning_rate)

    def adapt(self, images: Tensor) -> Output:
        """Answer the batch, then take one step down its entropy."""
        return self.replayed(self._descend, images)

    def _descend(self, images: Tensor) -> Output:
        logits = self.model(images)
        step_down(entropy(logits), self.optimizer)
        return Output(logits.detach())
