"""The network as it was trained: the object that says «no adaptation», so that nobody asks whether there is any."""

from __future__ import annotations

import torch
from torch import Tensor

from driftlaw.base import Adapter, Plan, StepOutput


class Source(Adapter, name="source"):
    """Answers with the stored statistics and never moves.

    **Departs from the paper:** nothing.
    """

    title = "Source"
    adapts = "nothing"
    forward_cost, backward_cost = 1, 0

    def update(self, images: Tensor, plan: Plan) -> StepOutput:
        """Answer the batch."""
        return self.replayed(self._forward, images)

    @torch.no_grad()
    def _forward(self, images: Tensor) -> StepOutput:
        return StepOutput(self.model(images))
