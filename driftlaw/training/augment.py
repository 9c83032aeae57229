"""Random crops and flips for training: a draw an image, the whole batch at once, on the device."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def crop_and_flip(images: Tensor, generator: torch.Generator, *, padding: int, flip: bool) -> Tensor:
    """Return images (n, c, h, w) of the same dtype, each cropped at random from its padded self and maybe mirrored.

    Args:
        images: any dtype, on the generator's device.
        generator: drives the draws.
        padding: pixels of black on each side.
        flip: whether half of the images are mirrored.
    """
    count, _, height, width = images.shape
    device = images.device
    padded = F.pad(images, (padding,) * 4)
    top, left = torch.randint(2 * padding + 1, (2, count, 1), generator=generator, device=device)
    rows = top + torch.arange(height, device=device)
    columns = left + torch.arange(width, device=device)
    if flip:
        mirrored = torch.rand(count, 1, generator=generator, device=device) < 0.5
        columns = torch.where(mirrored, columns.flip(1), columns)
    # one gather: the channel axis is kept whole between two index arrays, so it comes last
    chosen = padded[torch.arange(count, device=device)[:, None, None], :, rows[:, :, None], columns[:, None, :]]
    return chosen.permute(0, 3, 1, 2)
