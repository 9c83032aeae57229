"""Prior correction: logits weighted by the classes that the batch seems to contain (ROID)."""

import torch
from torch import Tensor

from driftlaw.dense import pixels, softmax


@torch.no_grad()
def correct_prior(logits: Tensor) -> Tensor:
    """Return logits·K·π̃, where π̃ is the smoothed class distribution of the batch; logits (n, K) or (n, K, h, w).

    π is the mean of softmax(logits) over the batch, s = max(1/n, 1/K) / max(π), and π̃ = (π + s)/(1 + s·K). The factor K
    keeps the scale of the logits: it is 1 for a uniform prior, and arg-max does not depend on it. For logits per pixel
    π is the mean over pixels, and n their number.

    >>> correct_prior(torch.tensor([[2.0, 0.0], [0.0, 2.0]]))
    tensor([[2., 0.],
            [0., 2.]])
    """
    rows = pixels(logits)
    count, classes = rows.shape
    prior = softmax(rows).mean(dim=0)
    # sym_max and not max: in torch.export the number of images is a symbol.
    smoothing: Tensor = torch.sym_max(1 / count, 1 / classes) / prior.amax()
    factor = classes * (prior + smoothing) / (1 + smoothing * classes)
    return logits * factor.view(-1, *[1] * (logits.ndim - 2))
