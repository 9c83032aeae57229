"""Random crops and flips of a whole batch on its device, drawn per image."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def crop_and_flip(images: Tensor, generator: torch.Generator, *, padding: int, flip: bool) -> Tensor:
    """Return images (n, c, h, w) of the same dtype, each randomly cropped from its padded version and maybe mirrored.

    Args:
        images: any dtype, on the generator's device.
        generator: source of randomness.
        padding: black pixels added on each side before cropping.
        flip: mirror each image with probability 1/2.
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
    # The slice between index arrays moves the channel axis to the end.
    cropped = padded[torch.arange(count, device=device)[:, None, None], :, rows[:, :, None], columns[:, None, :]]
    return cropped.permute(0, 3, 1, 2)
