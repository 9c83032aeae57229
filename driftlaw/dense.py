"""Dense outputs, logits (n, classes, h, w) as of segmentation networks. One rule holds everywhere: a pixel is a sample.

Entropies, scores, sample weights, filters, prior correction and monitors are those of classification with pixels in
place of images: means are over all pixels of a batch, and a filter drops pixels. With one pixel per image, logits
(n, classes, 1, 1), all results equal those for logits (n, classes) bit for bit.
"""

import math

import torch  # noqa: F401 (used in doctests)
from torch import Tensor

MONITORED_PIXELS = 4096  # per image, at most


def pixels(logits: Tensor) -> Tensor:
    """Return logits (n, classes, h, w) as (n·h·w, classes), one row per pixel; (n, classes) is returned unchanged.

    >>> pixels(torch.zeros(2, 5, 4, 3)).shape
    torch.Size([24, 5])
    """
    return logits if logits.ndim == 2 else logits.movedim(1, -1).flatten(0, -2)


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
