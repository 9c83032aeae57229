"""Comparison of logits with labels: wrong predictions, and for label maps intersection and union of every class."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from driftlaw.base import Batch
from driftlaw.errors import UsageError
from driftlaw.records.jsonl import Line

IGNORE_INDEX = 255
"""Default label of pixels that do not count, as in Cityscapes. Negative labels of a label map do not count either."""


def check_label_maps(batch: Batch) -> None:
    """Raise UsageError if label maps do not have the size of their images."""
    if batch.labels is not None and batch.labels.ndim == 3 and batch.labels.shape[-2:] != batch.images.shape[-2:]:
        raise UsageError(
            f"The label maps of batch {batch.index} have {_size(batch.labels.shape)} pixels, but its images have "
            f"{_size(batch.images.shape)}. Expected one label per pixel. Resize label maps with nearest-neighbour "
            "interpolation."
        )


def check_labels(labels: Tensor, shape: Sequence[int], ignore_index: int = IGNORE_INDEX) -> None:
    """Raise UsageError if labels do not fit logits of a shape.

    Args:
        labels: (n,), or label maps (n, h, w).
        shape: (n, classes), or (n, classes, h, w).
        ignore_index: label of pixels that do not count.
    """
    has_maps, classes = labels.ndim == 3, shape[1]
    if not has_maps and len(shape) > 2:
        raise UsageError(
            f"The model returns logits of shape {tuple(shape)}, a class per pixel, but the stream has one label per "
            "image. Use label maps (n, h, w), or a classifier."
        )
    if has_maps and (len(shape) != 4 or classes < 2):
        raise UsageError(
            f"The stream has label maps, but the model returns logits of shape {tuple(shape)}. Expected "
            "(n, classes, h, w) with at least two classes, one of which may be the background."
        )
    if has_maps and (shape[-2] > labels.shape[-2] or shape[-1] > labels.shape[-1]):
        raise UsageError(
            f"The model returns logits of {_size(shape)} pixels for label maps of {_size(labels.shape)}. Expected the "
            "same or a lower resolution."
        )
    labels = labels.to(torch.int64)
    highest = int((labels.masked_fill(labels == ignore_index, -1) if has_maps else labels).max())
    if highest >= classes:
        ignore = f" If these pixels have no class, pass ignore_index={highest} to run()." if has_maps else ""
        raise UsageError(
            f"The model has {classes} output classes, but the stream contains label {highest}. Use a model trained on "
            f"this dataset, or a dataset that matches the model.{ignore}"
        )


def compare(logits: Tensor, labels: Tensor | None, ignore_index: int = IGNORE_INDEX) -> Line:
    """Return the part of a batch line that compares predictions with labels.

    A prediction is wrong if its logits are NaN or infinite. For label maps, the predictions of pixels with a label are
    counted: ``pixels`` is their number, and ``iou`` has the intersection and the union of every class in pixels.

    Args:
        logits: (n, classes) for labels, (n, classes, h, w) for label maps. Logits of a lower resolution than the label
            maps are enlarged.
        labels: (n,), label maps (n, h, w), or None.
        ignore_index: label of pixels that do not count.

    Raises:
        UsageError: logits and labels do not fit each other.

    >>> compare(torch.tensor([[[[5.0, 0.0]], [[0.0, 5.0]]]]), torch.tensor([[[0, 255]]]))
    {'wrong': 0, 'pixels': 1, 'iou': {'intersection': [1, 0], 'union': [1, 0]}}
    """
    if labels is None:
        failed = (~logits.amax(1).isfinite()).view(len(logits), -1).any(1)
        return {"wrong": None, **_not_finite(failed)}
    check_labels(labels, logits.shape, ignore_index)
    if labels.ndim == 1:
        failed = ~logits.amax(1).isfinite()  # -inf is a legal logit of a class that is ruled out
        wrong = int(((logits.argmax(1) != labels.to(logits.device)) | failed).sum())
        return {"wrong": wrong, **_not_finite(failed)}
    classes = logits.shape[1]
    counts = torch.zeros(classes, classes + 1, dtype=torch.int64, device=logits.device)  # last: not finite
    for index in range(len(logits)):  # one image at a time: enlarged logits need much memory
        pixels, truth = labelled_pixels(logits[index : index + 1], labels[index : index + 1], ignore_index)
        if len(truth):
            predicted = pixels.argmax(1).masked_fill(~pixels.amax(1).isfinite(), classes)
            pairs = torch.bincount(truth * (classes + 1) + predicted, minlength=counts.numel())
            counts += pairs.view_as(counts)
    counts = counts.cpu()
    intersection, total = counts.diagonal(), int(counts.sum())
    union = counts.sum(1) + counts[:, :classes].sum(0) - intersection
    return {
        "wrong": total - int(intersection.sum()),
        **({"not_finite": count} if (count := int(counts[:, classes].sum())) else {}),
        "pixels": total,
        "iou": {"intersection": intersection.tolist(), "union": union.tolist()},
    }


def labelled_pixels(logits: Tensor, labels: Tensor, ignore_index: int = IGNORE_INDEX) -> tuple[Tensor, Tensor]:
    """Return logits (k, classes) and labels (k,) of the k pixels that have a label.

    Args:
        logits: (n, classes, h, w). They are enlarged to the size of the label maps, bilinearly.
        labels: label maps (n, h, w), on any device.
        ignore_index: label of pixels that are left out, besides negative labels.
    """
    labels = labels.to(logits.device, torch.int64)
    if logits.shape[-2:] != labels.shape[-2:]:
        logits = F.interpolate(logits.float(), labels.shape[-2:], mode="bilinear", align_corners=False)
    counted = (labels != ignore_index) & (labels >= 0)
    return logits.movedim(1, -1)[counted], labels[counted]


def _not_finite(failed: Tensor) -> Line:
    return {"not_finite": count} if (count := int(failed.sum())) else {}


def _size(shape: Sequence[int]) -> str:
    return f"{shape[-2]}×{shape[-1]}"
