"""BN-1: BatchNorm statistics of the batch at hand (Schneider et al., NeurIPS 2020; Nado et al., 2020)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from driftlaw.base import Adapter, BatchStatsSettings, Plan, StepOutput
from driftlaw.components.batch_norm import batch_norm_layers, use_batch_stats
from driftlaw.errors import UsageError


class Norm(Adapter, name="norm"):
    """Replaces the stored BatchNorm statistics by those of each batch; no gradient, nothing moves, order is irrelevant.

    **Departs from the paper:** nothing.
    """

    title = "BN-1"
    paper = "Improving robustness against common corruptions by covariate shift adaptation, NeurIPS 2020"
    adapts = "nothing"
    forward_cost, backward_cost = 1, 0

    class Config(BatchStatsSettings):
        """Settings of BN-1: those for small batches."""

    def configure(self, model: nn.Module) -> None:
        """Let every BatchNorm layer use batch statistics."""
        if not batch_norm_layers(model):
            raise UsageError(
                "norm adapts BatchNorm statistics, and this model has no BatchNorm layer: take source or law"
            )
        use_batch_stats(model, self.config.share_of_source)

    def update(self, images: Tensor, plan: Plan) -> StepOutput:
        """Answer the batch with its own statistics."""
        return self.replayed(self._forward, images)

    @torch.no_grad()
    def _forward(self, images: Tensor) -> StepOutput:
        return StepOutput(self.model(images))
