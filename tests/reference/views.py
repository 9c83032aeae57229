"""Strong views (AdaContrast), one pixel at a time."""

from __future__ import annotations

import colorsys
import math

import numpy as np

NAMES = ("brightness", "contrast", "saturation", "hue")


def reference_strong_view(images: np.ndarray, params) -> np.ndarray:
    """Apply to each image (n, 3, h, w) in [0, 1] its own parameters."""
    return np.stack([_view_of_image(image, params, index) for index, image in enumerate(images)])


def _view_of_image(image: np.ndarray, params, index: int) -> np.ndarray:
    image = np.clip(image, 0, 1)
    if params.jittered[index]:
        for operation in params.order[index].tolist():
            image = jitter(image, NAMES[operation], float(params.amounts[index, operation]))
    if params.grayscale[index]:
        image = np.stack([luminance(image)] * 3)
    if params.blurred[index]:
        image = _blur(image, float(params.sigmas[index]))
    return image[:, :, ::-1] if params.flipped[index] else image


def luminance(image: np.ndarray) -> np.ndarray:
    return 0.2989 * image[0] + 0.587 * image[1] + 0.114 * image[2]


def jitter(image: np.ndarray, name: str, amount: float) -> np.ndarray:
    """Change the color of one image (3, h, w)."""
    if name == "hue":
        _, height, width = image.shape
        turned = np.empty_like(image)
        for y in range(height):
            for x in range(width):
                pixel_hue, saturation, value = colorsys.rgb_to_hsv(*image[:, y, x])
                turned[:, y, x] = colorsys.hsv_to_rgb((pixel_hue + amount) % 1.0, saturation, value)
        return turned
    if name == "gamma":
        return np.clip(np.maximum(image, 1e-8) ** amount, 0, 1)
    towards = {"brightness": 0.0, "contrast": luminance(image).mean(), "saturation": luminance(image)}[name]
    return np.clip(amount * image + (1 - amount) * towards, 0, 1)


def _blur(image: np.ndarray, sigma: float) -> np.ndarray:
    """Apply a 13×13 Gaussian with edge values replicated outside."""
    _, height, width = image.shape
    weights = [math.exp(-0.5 * (distance / sigma) ** 2) for distance in range(-6, 7)]
    total = sum(weights)
    blurred = np.zeros_like(image)
    for y in range(height):
        for x in range(width):
            for down in range(-6, 7):
                for right in range(-6, 7):
                    share = weights[down + 6] * weights[right + 6] / total**2
                    row, column = min(max(y + down, 0), height - 1), min(max(x + right, 0), width - 1)
                    blurred[:, y, x] += share * image[:, row, column]
    return blurred
