"""Prototypes: what the features of a class look like on average."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from driftlaw.components.features import logits_and_features
from driftlaw.errors import UsageError
from driftlaw.execution.precision import full_precision


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
        with full_precision(features):
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


def nearest(features: Tensor, prototypes: Tensor) -> Tensor:
    """Return for every row of features (n, d) the number of the prototype (classes, d) most similar by cosine: (n,)."""
    with full_precision(features):
        return (F.normalize(features, dim=1) @ F.normalize(prototypes, dim=1).T).argmax(dim=1)
