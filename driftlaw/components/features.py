"""Features of any classifier (the input of its last linear layer) and class prototypes.

These functions are for classification: features (n, d), logits (n, classes).
"""

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from driftlaw.errors import UsageError
from driftlaw.execution.precision import at_least_float32, autocast_disabled
from driftlaw.execution.split_pass import gather_rows


def find_head(model: nn.Module) -> nn.Linear:
    """Return the head of a model, its last linear layer. Its ``in_features`` is the number of features per image.

    >>> find_head(nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 2))).in_features
    5

    Raises:
        UsageError: the model has no linear layer.
    """
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not layers:
        raise UsageError(
            "The model has no linear layer. This method uses features, the input of a linear classification head. "
            "Use a model with an nn.Linear head, or another method."
        )
    return layers[-1]


def logits_and_features(model: nn.Module, images: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits (n, classes) and features (n, d) of one forward pass; gradients flow through both.

    Raises:
        UsageError: the head was not called exactly once with a tensor (n, d).
    """
    inputs: list[Tensor] = []
    hook = find_head(model).register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    try:
        logits = model(images)
    finally:
        hook.remove()
    if len(inputs) != 1 or inputs[0].ndim != 2:
        shapes = [tuple(value.shape) for value in inputs]
        raise UsageError(
            f"The last linear layer of the model received inputs of shapes {shapes}. Expected one input of shape "
            "(n, features) per forward pass. Use a model with a linear classification head, or another method."
        )
    return logits, gather_rows(at_least_float32(inputs[0]))


@torch.no_grad()
def class_means(model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], num_classes: int) -> Tensor:
    """Return the prototypes (classes, d): the mean features of the images of every class.

    Args:
        model: the model; train and eval modes are not changed.
        batches: pairs of images (n, c, h, w) and labels (n,).
        num_classes: number of classes.

    Raises:
        UsageError: a class has no image.
    """
    totals: list[Tensor] = []
    counts: list[Tensor] = []
    for images, labels in batches:
        _, features = logits_and_features(model, images)
        one_hot = F.one_hot(labels, num_classes).to(features.dtype)
        with autocast_disabled(features):
            totals.append(one_hot.T @ features)  # index_add is not deterministic on a GPU
        counts.append(one_hot.sum(0))
    count = torch.stack(counts).sum(0)
    missing = (count == 0).nonzero().flatten().tolist()
    if missing:
        raise UsageError(
            f"At least one training image per class is needed to compute prototypes. {len(missing)} classes had none "
            f"(for example class {missing[0]}). Increase prototype_images, or pass train_data that covers all classes."
        )
    return torch.stack(totals).sum(0) / count[:, None]


def nearest_prototype(features: Tensor, prototypes: Tensor) -> Tensor:
    """Return (n,), the index of the prototype (classes, d) with the highest cosine similarity to features (n, d)."""
    with autocast_disabled(features):
        return (F.normalize(features, dim=1) @ F.normalize(prototypes, dim=1).T).argmax(dim=1)


def most_similar(rows: Tensor, candidates: Tensor) -> Tensor:
    """Return (n,), the index of the candidate (m, d) with the largest inner product with each row (n, d)."""
    with autocast_disabled(rows):
        return (rows @ candidates.T).argmax(dim=1)
