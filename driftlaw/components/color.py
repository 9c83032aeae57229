"""Changes of colour: pure functions of images (n, c, h, w) in [0, 1].

An amount is a number for all images, or (n, 1, 1, 1), one for each. Images that do not have three channels have
no colour: what would only change their colour leaves them as they are.
"""

from __future__ import annotations

import torch
from torch import Tensor

LUMA = (0.2989, 0.587, 0.114)


def luminance(images: Tensor) -> Tensor:
    """Return the luminance (n, 1, h, w)."""
    if images.shape[1] != len(LUMA):
        return images.mean(dim=1, keepdim=True)
    red, green, blue = images.unbind(1)
    return (LUMA[0] * red + LUMA[1] * green + LUMA[2] * blue).unsqueeze(1)


def to_grayscale(images: Tensor) -> Tensor:
    """Return the luminance in all three channels."""
    return images if images.shape[1] != len(LUMA) else luminance(images).expand_as(images)


def brightness(images: Tensor, amount: float | Tensor) -> Tensor:
    """Return amount · image, clipped."""
    return _blend(images, 0.0, amount)


def contrast(images: Tensor, amount: float | Tensor) -> Tensor:
    """Move each image away from its mean luminance (amount above 1) or towards it (below)."""
    return _blend(images, luminance(images).mean(dim=(1, 2, 3), keepdim=True), amount)


def saturation(images: Tensor, amount: float | Tensor) -> Tensor:
    """Move each pixel away from its luminance (amount above 1) or towards it (below)."""
    if images.shape[1] != len(LUMA):
        return images
    return _blend(images, luminance(images), amount)


def gamma(images: Tensor, amount: float | Tensor) -> Tensor:
    """Return image^amount, from 1e-8 up."""
    return images.clamp(min=1e-8).pow(amount).clamp(0, 1)


def hue(images: Tensor, turn: float | Tensor) -> Tensor:
    """Turn the hue by ``turn`` of a full circle, value and saturation kept."""
    if images.shape[1] != len(LUMA):
        return images
    high, low = images.amax(1, keepdim=True), images.amin(1, keepdim=True)
    chroma = high - low
    safe = torch.where(chroma == 0, torch.ones_like(chroma), chroma)
    red, green, blue = images.split(1, dim=1)
    sixths = torch.where(
        high == red,
        (green - blue) / safe,
        torch.where(high == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )
    turned = sixths + 6 * turn
    # A GPU would be waited for if it were handed the three numbers; 5, 3, 1 it can count itself.
    offsets = torch.arange(5, 0, -2, dtype=images.dtype, device=images.device).view(1, 3, 1, 1)
    position = (offsets + turned) % 6
    share = torch.minimum(position, 4 - position).clamp(0, 1)
    return high - chroma * share


def _blend(images: Tensor, other: Tensor | float, amount: float | Tensor) -> Tensor:
    return (amount * images + (1 - amount) * other).clamp(0, 1)
