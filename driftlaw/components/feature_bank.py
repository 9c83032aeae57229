"""A memory of past images: rings of constant size, and what the nearest of them say."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from driftlaw.execution.precision import autocast_disabled


class FeatureBank(nn.Module):
    """A ring of features, and of whatever else is known of the same images; the newest take the place of the oldest.

    All of it is buffers, so that it is saved, loaded, reset and moved with the adapter; their size never changes.

    >>> memory = FeatureBank(3, features=torch.zeros(2), labels=torch.zeros((), dtype=torch.int64))
    >>> memory.store(features=torch.tensor([[0.0, 2.0], [3.0, 0.0]]), labels=torch.tensor([7, 8]))
    >>> memory.features.tolist(), memory.labels.tolist(), memory.filled().tolist()
    ([[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]], [7, 8, 0], [True, True, False])

    Args:
        size: how many images are remembered.
        features: an example of one image's features (d,); they are kept at unit length.
        others: an example each of what else is remembered of an image.

    Attributes:
        features: (size, d).
        stored: how many images were ever stored.
    """

    features: Tensor
    stored: Tensor

    def __init__(self, size: int, *, features: Tensor, **others: Tensor) -> None:
        super().__init__()
        self.size = size
        self.rows = ("features", *others)
        for name, example in {"features": features, **others}.items():
            self.register_buffer(name, example.new_zeros(size, *example.shape))
        self.register_buffer("stored", torch.zeros((), dtype=torch.int64, device=features.device))

    @torch.no_grad()
    def store(self, **rows: Tensor) -> None:
        """Remember n images: features (n, d), and (n, …) of everything else; of more than fit, the last."""
        rows = rows | {"features": F.normalize(rows["features"], dim=1)}
        count = len(rows["features"])
        kept = min(count, self.size)
        places = (self.stored + torch.arange(count - kept, count, device=self.stored.device)) % self.size
        for name in self.rows:
            held = self.get_buffer(name)
            held.index_copy_(0, places, rows[name][count - kept :].to(held.dtype))
        self.stored.add_(count)

    def filled(self) -> Tensor:
        """Return (size,), which places hold an image."""
        return torch.arange(self.size, device=self.stored.device) < self.stored

    def similarities(self, features: Tensor) -> Tensor:
        """Return (n, size), the cosine between features (n, d) and those remembered; 0 where there are none."""
        with autocast_disabled(self.features):
            return F.normalize(features, dim=1).to(self.features.dtype) @ self.features.T

    @torch.no_grad()
    def knn_predict(self, features: Tensor, neighbours: int) -> Tensor:
        """Return (n, classes), the mean of the remembered ``probabilities`` of the nearest, by cosine.

        Fewer vote while fewer are remembered; where there are none the answer is all zeros.
        """
        near = self.similarities(features).masked_fill(~self.filled(), -torch.inf)
        cosines, places = near.topk(min(neighbours, self.size), dim=1)
        voting = cosines.isfinite().to(self.features.dtype)
        votes = self.get_buffer("probabilities")[places] * voting.unsqueeze(2)
        return votes.sum(dim=1) / voting.sum(dim=1, keepdim=True).clamp(min=1)
