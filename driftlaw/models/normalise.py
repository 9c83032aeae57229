"""Input normalisation as the first layer of a network, so that images are in [0, 1] everywhere else."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Normalise(nn.Module):
    """Returns (x − mean)/std a channel; the numbers belong to the weights and travel in their metadata."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float] = (0.0, 0.0, 0.0), std: Sequence[float] = (1.0, 1.0, 1.0)) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Normalise images (n, c, h, w)."""
        return (images - self.mean) / self.std

    def as_lists(self) -> dict[str, list[float]]:
        """Return the numbers as plain data, as short as they can be without losing a bit."""
        return {"mean": _shortest(self.mean), "std": _shortest(self.std)}


def _shortest(numbers: Tensor) -> list[float]:
    return [float(str(number)) for number in numbers.flatten().cpu().numpy()]
