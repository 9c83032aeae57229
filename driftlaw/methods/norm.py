"""BN-1: BatchNorm statistics of the current batch (Schneider et al., NeurIPS 2020; Nado et al., 2020)."""

import torch
from torch import Tensor, nn

from driftlaw.base import Adapter, BatchStatsSettings, Plan, StepOutput
from driftlaw.components.batch_norm import use_batch_stats
from driftlaw.errors import UsageError
from driftlaw.execution.batch_statistics import batch_norm_layers


class Norm(Adapter, name="norm"):
    """BN-1 replaces the stored BatchNorm statistics by those of each batch.

    No parameter is trained, and the order of the batches does not matter.

    **Differences from the paper:** none.
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
                "BN-1 replaces BatchNorm statistics, but the model has no BatchNorm layer. Use the method 'law' or "
                "'source'."
            )
        use_batch_stats(model, self.config.stored_stats_weight)

    @torch.no_grad()
    def update(self, images: Tensor, plan: Plan) -> StepOutput:
        """Predict the batch with its own statistics."""
        return StepOutput(self.model(images))
