"""The contrastive loss: views of one image draw together, all other images push away."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from driftlaw.execution.precision import at_least_float32, autocast_disabled


def contrastive_loss(views: Sequence[Tensor], temperature: float) -> Tensor:
    """Return −log(e^(s(a,p)/T) / Σ e^(s(a,·)/T)), the mean over every anchor a and every other view p of its image.

    s is the cosine similarity; the sum runs over all views of all images but the anchor itself.

    Args:
        views: v ≥ 2 tensors (n, d); row i of each is a view of image i.
        temperature: T; the smaller, the more the nearest neighbours count.
    """
    features = F.normalize(at_least_float32(torch.cat(list(views))), dim=1)
    image = torch.arange(len(views[0]), device=features.device).repeat(len(views))
    itself = torch.eye(len(features), dtype=torch.bool, device=features.device)
    with autocast_disabled(features):
        similarity = (features @ features.T / temperature).masked_fill(itself, -torch.inf)
    positive = (image[:, None] == image[None, :]) & ~itself
    # A sum over a mask, not an index by it: the number of pairs is known, and a GPU need not be asked for it.
    pairs = len(features) * (len(views) - 1)
    return -similarity.log_softmax(dim=1).where(positive, 0.0).sum() / pairs


def make_projector(features: int, size: int, generator: torch.Generator, like: Tensor) -> nn.Sequential:
    """Return two linear layers with a ReLU between them, d → size → size, drawn from a CPU generator.

    The weights are uniform within ±1/√(inputs), which is torch's own start of a linear layer.

    Args:
        features: d, the number of features of an image.
        size: of what is compared.
        generator: where the weights are drawn from; the global random state is left alone.
        like: whose device and dtype the layers get.
    """
    layers = [nn.utils.skip_init(nn.Linear, inputs, size) for inputs in (features, size)]
    with torch.no_grad():
        for layer in layers:
            for value in (layer.weight, layer.bias):
                value.uniform_(-(layer.in_features**-0.5), layer.in_features**-0.5, generator=generator)
    return nn.Sequential(layers[0], nn.ReLU(), layers[1]).to(like.device, like.dtype)


def info_nce(query: Tensor, key: Tensor, negatives: Tensor, counts: Tensor, temperature: float) -> Tensor:
    """Return the mean of −log(e^{q·k/T} / (e^{q·k/T} + Σ e^{q·m/T})), the sum over the negatives m that count.

    Args:
        query: features (n, d) of one view; gradients flow through them.
        key: features (n, d) of another view of the same images.
        negatives: (n, m), the cosines between the queries and features of other images.
        counts: (n, m), which negatives count for which query.
        temperature: T.
    """
    positive = F.cosine_similarity(query, key, dim=1).unsqueeze(1)
    others = negatives.masked_fill(~counts, -torch.inf)
    logits = torch.cat([positive, others], dim=1) / temperature
    return (logits.logsumexp(dim=1) - logits[:, 0]).mean()
