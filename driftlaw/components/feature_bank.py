"""Feature bank: a ring buffer of features of past images, and nearest-neighbor predictions from it."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from driftlaw.execution.precision import autocast_disabled


class FeatureBank(nn.Module):
    """Ring buffer of features and other values per image; new images replace the oldest.

    Everything is a buffer of constant size, so it is saved, loaded, reset and moved with the adapter.

    Example:
        >>> bank = FeatureBank(3, features=torch.zeros(2), labels=torch.zeros((), dtype=torch.int64))
        >>> bank.store(features=torch.tensor([[0.0, 2.0], [3.0, 0.0]]), labels=torch.tensor([7, 8]))
        >>> bank.features.tolist(), bank.labels.tolist(), bank.filled().tolist()
        ([[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]], [7, 8, 0], [True, True, False])

    Args:
        size: capacity, in images.
        features: example of the features (d,) of one image. Stored features have unit length.
        others: example of every other value that is stored per image.

    Attributes:
        features: (size, d).
        stored: number of images that were ever stored.
    """

    features: Tensor
    stored: Tensor

    def __init__(self, size: int, *, features: Tensor, **others: Tensor) -> None:
        super().__init__()
        self.size = size
        self.columns = ("features", *others)
        for name, example in {"features": features, **others}.items():
            self.register_buffer(name, example.new_zeros(size, *example.shape))
        self.register_buffer("stored", torch.zeros((), dtype=torch.int64, device=features.device))

    @torch.no_grad()
    def store(self, **values: Tensor) -> None:
        """Store n images: features (n, d) and (n, ...) of every other value; of more than ``size``, the last ones."""
        values = values | {"features": F.normalize(values["features"], dim=1)}
        count = len(values["features"])
        kept = min(count, self.size)
        indices = (self.stored + torch.arange(count - kept, count, device=self.stored.device)) % self.size
        for name in self.columns:
            buffer = self.get_buffer(name)
            buffer.index_copy_(0, indices, values[name][count - kept :].to(buffer.dtype))
        self.stored.add_(count)

    def filled(self) -> Tensor:
        """Return (size,), True for rows that contain an image."""
        return torch.arange(self.size, device=self.stored.device) < self.stored

    def similarities(self, features: Tensor) -> Tensor:
        """Return (n, size), the cosine similarity of features (n, d) and every stored row; 0 for empty rows."""
        with autocast_disabled(self.features):
            return F.normalize(features, dim=1).to(self.features.dtype) @ self.features.T

    @torch.no_grad()
    def knn_predict(self, features: Tensor, neighbours: int) -> Tensor:
        """Return (n, classes), the mean of the stored ``probabilities`` of the nearest neighbors by cosine similarity.

        If fewer images are stored than ``neighbours``, all of them are used. If none are, the result is 0.
        """
        similarities = self.similarities(features).masked_fill(~self.filled(), -torch.inf)
        cosines, indices = similarities.topk(min(neighbours, self.size), dim=1)
        weights = cosines.isfinite().to(self.features.dtype)
        probabilities = self.get_buffer("probabilities")[indices] * weights.unsqueeze(2)
        return probabilities.sum(dim=1) / weights.sum(dim=1, keepdim=True).clamp(min=1)
