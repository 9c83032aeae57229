"""Dense outputs, logits (n, classes, h, w) as of segmentation networks. One rule holds everywhere: a pixel is a sample.

Entropies, scores, sample weights, filters, prior correction and monitors are those of classification with pixels in
place of images: means are over all pixels of a batch, and a filter drops pixels. With one pixel per image, logits
(n, classes, 1, 1), all results equal those for logits (n, classes) bit for bit.
"""

import math

import torch
from torch import Tensor

MONITORED_PIXELS = 4096  # per image, at most
MANY_ROWS, FEW_CLASSES = 4096, 16


def pixels(logits: Tensor) -> Tensor:
    """Return logits (n, classes, h, w) as (n·h·w, classes), one row per pixel; (n, classes) is returned unchanged.

    >>> pixels(torch.zeros(2, 5, 4, 3)).shape
    torch.Size([24, 5])
    """
    return logits if logits.ndim == 2 else logits.movedim(1, -1).flatten(0, -2)


def softmax(rows: Tensor) -> Tensor:
    """Return the softmax over classes of ``rows`` (n, classes), fast for many rows of few classes on a CPU."""
    return rows.t().softmax(dim=0).t() if _is_tall(rows) else rows.softmax(dim=1)


def log_softmax(rows: Tensor) -> Tensor:
    """Return the logarithm of ``softmax(rows)``."""
    return rows.t().log_softmax(dim=0).t() if _is_tall(rows) else rows.log_softmax(dim=1)


def _is_tall(rows: Tensor) -> bool:
    """Return True if a softmax over the first dimension is faster.

    Over the last one, torch computes rows that do not fill a vector register of the CPU number by number, which takes
    about five times as long.
    """
    if rows.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    return len(rows) > MANY_ROWS and rows.shape[1] < FEW_CLASSES


def every_nth_pixel(logits: Tensor) -> Tensor:
    """Return logits (n, classes, h, w) at every n-th row and column, for monitors that compare or store them.

    n is the smallest number that leaves at most 4,096 pixels per image; (n, classes) is returned unchanged.

    >>> every_nth_pixel(torch.zeros(1, 11, 360, 480)).shape
    torch.Size([1, 11, 52, 69])
    """
    stride, size = 1, logits.shape[2:]
    while math.prod(-(-side // stride) for side in size) > MONITORED_PIXELS:
        stride += 1
    return logits if stride == 1 else logits[..., ::stride, ::stride]
