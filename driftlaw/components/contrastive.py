"""Contrastive losses on feature vectors, and the projector that computes what they compare."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from driftlaw.execution.precision import at_least_float32, autocast_disabled


def contrastive_loss(views: Sequence[Tensor], temperature: float) -> Tensor:
    """Return the NT-Xent loss of several views per image, as RMT uses it.

    The loss is −log(e^(s(a,p)/T) / Σ e^(s(a,·)/T)), averaged over every anchor a and every other view p of the same
    image. s is the cosine similarity. The sum runs over all views of all images except the anchor.

    Args:
        views: at least two tensors (n, d); row i of each is a view of image i.
        temperature: T. Low values give more weight to the most similar views.
    """
    features = F.normalize(at_least_float32(torch.cat(list(views))), dim=1)
    image = torch.arange(len(views[0]), device=features.device).repeat(len(views))
    is_self = torch.eye(len(features), dtype=torch.bool, device=features.device)
    with autocast_disabled(features):
        similarity = (features @ features.T / temperature).masked_fill(is_self, -torch.inf)
    positive = (image[:, None] == image[None, :]) & ~is_self
    # A masked sum: indexing with a mask would make the host wait for the number of pairs, which is known.
    pairs = len(features) * (len(views) - 1)
    return -similarity.log_softmax(dim=1).where(positive, 0.0).sum() / pairs


def info_nce(query: Tensor, key: Tensor, similarities: Tensor, is_negative: Tensor, temperature: float) -> Tensor:
    """Return the InfoNCE loss: the mean of −log(e^(q·k/T) / (e^(q·k/T) + Σ e^(q·m/T))) over the queries q.

    Args:
        query: features (n, d) of one view of each image.
        key: features (n, d) of another view of the same images.
        similarities: (n, m), cosine similarities of the queries and m stored features.
        is_negative: (n, m), True where a stored feature is a negative of the query and enters the sum.
        temperature: T.
    """
    positive = F.cosine_similarity(query, key, dim=1).unsqueeze(1)
    negative = similarities.masked_fill(~is_negative, -torch.inf)
    logits = torch.cat([positive, negative], dim=1) / temperature
    return (logits.logsumexp(dim=1) - logits[:, 0]).mean()


def make_projector(features: int, size: int, generator: torch.Generator, like: Tensor) -> nn.Sequential:
    """Return a two-layer perceptron d → size → size with a ReLU, initialized from a CPU generator.

    Weights and biases are uniform in ±1/√(inputs), the default of `torch.nn.Linear`.

    Args:
        features: d, the number of features per image.
        size: width of both layers.
        generator: source of the random weights; the global random state is not used.
        like: tensor whose device and dtype the layers get.
    """
    layers = [nn.utils.skip_init(nn.Linear, inputs, size) for inputs in (features, size)]
    with torch.no_grad():
        for layer in layers:
            for value in (layer.weight, layer.bias):
                value.uniform_(-(layer.in_features**-0.5), layer.in_features**-0.5, generator=generator)
    return nn.Sequential(layers[0], nn.ReLU(), layers[1]).to(like.device, like.dtype)
