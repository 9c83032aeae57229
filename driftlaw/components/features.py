"""Features of any network: what its last linear layer is given."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from driftlaw.errors import UsageError
from driftlaw.execution.precision import at_least_float32, autocast_disabled


def find_head(model: nn.Module) -> nn.Linear:
    """Return the last linear layer of a network, the one that makes logits of features."""
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not layers:
        raise UsageError("this method needs features, the input of a linear head, and this model has no linear layer")
    return layers[-1]


def logits_and_features(model: nn.Module, images: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits (n, classes) and features (n, d) of one forward pass; gradients flow through both."""
    given: list[Tensor] = []
    hook = find_head(model).register_forward_pre_hook(lambda _, arguments: given.append(arguments[0]))
    try:
        logits = model(images)
    finally:
        hook.remove()
    if len(given) != 1 or given[0].ndim != 2:
        shapes = [tuple(value.shape) for value in given]
        raise UsageError(f"the model's last linear layer was given {shapes}: expected one (n, features) a forward pass")
    return logits, at_least_float32(given[0])


def feature_size(model: nn.Module) -> int:
    """Return the number of features of an image.

    >>> feature_size(nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 2)))
    5
    """
    return find_head(model).in_features


def head_logits(model: nn.Module, features: Tensor) -> Tensor:
    """Return the logits that the head makes of features (n, d)."""
    return F.linear(features, find_head(model).weight, find_head(model).bias)


@torch.no_grad()
def class_means(model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], num_classes: int) -> Tensor:
    """Return the mean features (classes, d) of the images of every class.

    Args:
        model: the network; its modes are left as they are.
        batches: images (n, c, h, w) and labels (n,), at least one image of every class in all.
        num_classes: how many classes there are.
    """
    totals: list[Tensor] = []
    counts: list[Tensor] = []
    for images, labels in batches:
        _, features = logits_and_features(model, images)
        members = F.one_hot(labels, num_classes).to(features.dtype)
        with autocast_disabled(features):
            totals.append(members.T @ features)  # a product, as adding by index is not the same twice on a GPU
        counts.append(members.sum(0))
    count = torch.stack(counts).sum(0)
    missing = (count == 0).nonzero().flatten().tolist()
    if missing:
        raise UsageError(
            f"prototypes need an image of every class, and the source images that were looked at hold none of "
            f"{len(missing)} (such as class {missing[0]}): look at more of them, or give a source that has them"
        )
    return torch.stack(totals).sum(0) / count[:, None]


def nearest_prototype(features: Tensor, prototypes: Tensor) -> Tensor:
    """Return for every row of features (n, d) the number of the prototype (classes, d) most similar by cosine: (n,)."""
    with autocast_disabled(features):
        return (F.normalize(features, dim=1) @ F.normalize(prototypes, dim=1).T).argmax(dim=1)


def most_similar(rows: Tensor, candidates: Tensor) -> Tensor:
    """Return, for every row (n, d), the index of the candidate (m, d) with the largest inner product: (n,)."""
    with autocast_disabled(rows):
        return (rows @ candidates.T).argmax(dim=1)
