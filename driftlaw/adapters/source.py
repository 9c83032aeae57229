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

    @torch.no_grad()
    def adapt(self, images: Tensor) -> Output:
        """Answer the batch."""
        return Output(self.model(images))
