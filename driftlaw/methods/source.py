"""Source: the model without adaptation, the reference of every table."""

import torch
from torch import Tensor

from driftlaw.base import Adapter, Plan, StepOutput


class Source(Adapter, name="source"):
    """Source predicts with the model as it was trained, with stored BatchNorm statistics. Nothing is updated.

    **Differences from the paper:** none.
    """

    title = "Source"
    adapts = "nothing"
    forward_cost, backward_cost = 1, 0

    @torch.no_grad()
    def update(self, images: Tensor, plan: Plan) -> StepOutput:
        """Predict the batch."""
        return StepOutput(self.model(images))
