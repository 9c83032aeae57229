"""The network as it was trained: the object that says «no adaptation», so that nobody asks whether there is any."""

from __future__ import annotations

import torch
from torch import Tensor

from driftlaw.contract import Adapter, Output


class Source(Adapter, name="source"):
    """Answers with the stored statistics and never moves.

    **Departs from the paper:** nothing.
    """

    title = "Source"
    learns = "nothing"
    forward_units, backward_units = 1, 0

    def adapt(self, images: Tensor) -> Output:
        """Answer the batch."""
        return self.replayed(self._forward, images)

    @torch.no_grad()
    def _forward(self, images: Tensor) -> Output:
        return Output(self.model(images))
