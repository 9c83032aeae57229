"""Color operations: pure functions of images (n, c, h, w) in [0, 1].

An amount is one number for all images, or a tensor (n, 1, 1, 1) with one per image. Images without three channels have
no color: operations that only change color return them unchanged.
"""

import torch
from torch import Tensor

LUMA = (0.2989, 0.587, 0.114)  # ITU-R BT.601, as in torchvision


def luminance(images: Tensor) -> Tensor:
    """Return the luminance (n, 1, h, w)."""
    if images.shape[1] != len(LUMA):
        return images.mean(dim=1, keepdim=True)
    red, green, blue = images.unbind(1)
    return (LUMA[0] * red + LUMA[1] * green + LUMA[2] * blue).unsqueeze(1)


def to_grayscale(images: Tensor) -> Tensor:
    """Return images whose three channels are all the luminance."""
    return images if images.shape[1] != len(LUMA) else luminance(images).expand_as(images)


def brightness(images: Tensor, amount: float | Tensor) -> Tensor:
    """Return amount · image, clipped."""
    return _blend(images, 0.0, amount)


def contrast(images: Tensor, amount: float | Tensor) -> Tensor:
    """Return amount · image + (1 − amount) · its mean luminance, clipped."""
    return _blend(images, luminance(images).mean(dim=(1, 2, 3), keepdim=True), amount)


def saturation(images: Tensor, amount: float | Tensor) -> Tensor:
    """Return amount · pixel + (1 − amount) · its luminance, clipped."""
    return images if images.shape[1] != len(LUMA) else _blend(images, luminance(images), amount)


def gamma(images: Tensor, amount: float | Tensor) -> Tensor:
    """Return max(image, 1e-8)^amount, clipped."""
    return images.clamp(min=1e-8).pow(amount).clamp(0, 1)


def hue(images: Tensor, amount: float | Tensor) -> Tensor:
    """Rotate the hue by ``amount`` of a full circle; value and saturation (HSV) stay the same."""
    if images.shape[1] != len(LUMA):
        return images
    high, low = images.amax(1, keepdim=True), images.amin(1, keepdim=True)
    chroma = high - low
    safe = torch.where(chroma == 0, torch.ones_like(chroma), chroma)
    red, green, blue = images.split(1, dim=1)
    not_red = torch.where(high == green, 2 + (blue - red) / safe, 4 + (red - green) / safe)
    rotated = torch.where(high == red, (green - blue) / safe, not_red) + 6 * amount
    # 5, 3, 1, created on the device: copying three numbers to a GPU would make the host wait.
    offsets = torch.arange(5, 0, -2, dtype=images.dtype, device=images.device).view(1, 3, 1, 1)
    position = (offsets + rotated) % 6
    share = torch.minimum(position, 4 - position).clamp(0, 1)
    return high - chroma * share


def _blend(images: Tensor, other: Tensor | float, amount: float | Tensor) -> Tensor:
    return (amount * images + (1 - amount) * other).clamp(0, 1)
