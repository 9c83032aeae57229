"""Weights and filters of images or pixels: by certainty, by diversity, and by the entropy of their predictions.

They are masks and factors over a whole batch, so that shapes do not depend on the data and no value is read back to the
host. Logits are (n, classes), or (n, classes, h, w), which count as n·h·w images: all results have one value per pixel.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from driftlaw.components.losses import entropy
from driftlaw.dense import pixels, softmax
from driftlaw.errors import UsageError


def rescale(values: Tensor) -> Tensor:
    """Return (v − min v)/(max v − min v), in [0, 1]; zeros if all values are equal.

    >>> rescale(torch.tensor([1.0, 2.0, 3.0])), rescale(torch.tensor([5.0]))
    (tensor([0.0000, 0.5000, 1.0000]), tensor([0.]))
    """
    low, high = torch.aminmax(values)
    return (values - low) / torch.where(high > low, high - low, 1.0)


@torch.no_grad()
def diversity_and_certainty(logits: Tensor, mean_probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """Return the diversity 1 − cos(m, p) and the certainty −H(p) of every image, each rescaled to [0, 1], (n,).

    Args:
        logits: (n, classes).
        mean_probabilities: (classes,), the running mean m of the predicted probabilities p.
    """
    probabilities = _probabilities(logits, mean_probabilities)
    similarity = F.cosine_similarity(mean_probabilities.to(probabilities)[None], probabilities, dim=1)
    return rescale(1 - similarity), rescale(-entropy(logits, reduction="none"))


@torch.no_grad()
def diversity_certainty_weights(logits: Tensor, mean_probabilities: Tensor, temperature: float) -> Tensor:
    """Return the weights (n,) of ROID: exp(d·c/T) ≥ 1, and 0 for images with less than the mean diversity.

    d is the diversity 1 − cos(m, p) and c the certainty −H(p), both rescaled to [0, 1] over the batch. At least one
    image has a weight above 0.

    Args:
        logits: (n, classes).
        mean_probabilities: (classes,), the running mean m of the predicted probabilities p.
        temperature: T.
    """
    diversity, certainty = diversity_and_certainty(logits, mean_probabilities)
    weights = (diversity * certainty / temperature).exp()
    return weights.masked_fill(diversity < diversity.mean(), 0.0)


@torch.no_grad()
def update_mean_probabilities(mean_probabilities: Tensor, logits: Tensor, momentum: float) -> None:
    """Set m to momentum·m + (1 − momentum)·mean softmax(logits), in place."""
    batch_mean = _probabilities(logits, mean_probabilities).mean(dim=0)
    mean_probabilities.lerp_(batch_mean.to(mean_probabilities), 1 - momentum)


@torch.no_grad()
def select_reliable(
    logits: Tensor, mean_probabilities: Tensor, entropy_threshold: float, similarity_threshold: float, momentum: float
) -> Tensor:
    """Return which images EATA keeps (n,), and update the running mean m of their predicted probabilities p in place.

    An image is kept if H(p) < ``entropy_threshold`` and |cos(m, p)| < ``similarity_threshold``. m = 0 means that no
    image was kept yet: then the second condition holds for all images, and m becomes the mean of p.

    Args:
        logits: (n, classes).
        mean_probabilities: (classes,), m.
        entropy_threshold: in nats.
        similarity_threshold: maximum cosine similarity.
        momentum: weight of the old m.
    """
    old, probabilities = mean_probabilities, _probabilities(logits, mean_probabilities)
    similarity = F.cosine_similarity(old[None], probabilities, dim=1)
    kept = (entropy(logits, reduction="none") < entropy_threshold) & (similarity.abs() < similarity_threshold)
    kept_mean = torch.where(kept[:, None], probabilities, 0.0).sum(dim=0) / kept.sum().clamp(min=1)
    new = torch.where(old.sum() > 0, torch.lerp(kept_mean.to(old), old, momentum), kept_mean.to(old))
    mean_probabilities.copy_(torch.where(kept.any(), new, old))
    return kept


def _probabilities(logits: Tensor, mean_probabilities: Tensor) -> Tensor:
    """Return softmax(logits), one row per image or pixel, for a comparison with a running mean of them."""
    expected = len(mean_probabilities)
    if logits.shape[1] != expected:
        raise UsageError(
            f"The model returned logits for {logits.shape[1]} classes, but its last layer has {expected} outputs, and "
            "the method keeps a mean probability for each. Use a model whose last layer returns the logits, or a "
            "method that keeps none, such as 'law'."
        )
    return softmax(pixels(logits))


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of the values for which the mask is True; 0 if there are none.

    >>> masked_mean(torch.tensor([1.0, 2.0, 9.0]), torch.tensor([True, True, False]))
    tensor(1.5000)
    """
    return torch.where(mask, values, 0.0).sum() / mask.sum().clamp(min=1)
