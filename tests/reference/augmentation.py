"""The augmentation of LAW, CoTTA, RMT and ROID, pixel by pixel, with padding and cropping as published."""

from __future__ import annotations

import colorsys
import math

import numpy as np


def reference_augment(images: np.ndarray, params, noise: np.ndarray) -> np.ndarray:
    """Apply the same parameters to all images (n, 3, h, w) in [0, 1], with standard normal ``noise`` (n, 3, h, w)."""
    return np.stack(
        [_augment_image(image, params, image_noise) for image, image_noise in zip(images, noise, strict=True)]
    )


def _augment_image(image: np.ndarray, params, noise: np.ndarray) -> np.ndarray:
    image = np.clip(image, 0, 1)
    for name, amount in params.jitter:
        image = _jitter(image, name, amount)
    _, height, width = image.shape
    half_h, half_w = height // 2, width // 2
    padded = np.pad(image, ((0, 0), (half_h, half_h), (half_w, half_w)), mode="edge")
    blurred = _blur(_affine(padded, params), params.sigma)
    cropped = blurred[:, half_h : half_h + height, half_w : half_w + width]
    if params.flip:
        cropped = cropped[:, :, ::-1]
    return np.clip(cropped + 0.005 * noise, 0, 1)


def reference_sharp_augment(image: np.ndarray, params) -> np.ndarray:
    """Apply ROID's variant to one image (3, h, w): reflected padding, no blur, no noise."""
    for name, amount in params.jitter:
        image = _jitter(image, name, amount)
    _, height, width = image.shape
    half_h, half_w = height // 2, width // 2
    padded = np.pad(image, ((0, 0), (half_h, half_h), (half_w, half_w)), mode="reflect")
    cropped = _affine(padded, params)[:, half_h : half_h + height, half_w : half_w + width]
    return np.clip(cropped[:, :, ::-1] if params.flip else cropped, 0, 1)


def _luminance(pixel: np.ndarray) -> float:
    return 0.2989 * pixel[0] + 0.587 * pixel[1] + 0.114 * pixel[2]


def _jitter(image: np.ndarray, name: str, amount: float) -> np.ndarray:
    _, height, width = image.shape
    result = np.empty_like(image)
    mean_luminance = np.mean([_luminance(image[:, y, x]) for y in range(height) for x in range(width)])
    for y in range(height):
        for x in range(width):
            pixel = image[:, y, x]
            if name == "brightness":
                new = amount * pixel
            elif name == "contrast":
                new = amount * pixel + (1 - amount) * mean_luminance
            elif name == "saturation":
                new = amount * pixel + (1 - amount) * _luminance(pixel)
            elif name == "gamma":
                new = np.maximum(pixel, 1e-8) ** amount
            else:
                hue, saturation, value = colorsys.rgb_to_hsv(*pixel)
                new = np.array(colorsys.hsv_to_rgb((hue + amount) % 1.0, saturation, value))
            result[:, y, x] = np.clip(new, 0, 1)
    return result


def _affine(padded: np.ndarray, params) -> np.ndarray:
    """Rotate, scale and shift about the center, with bilinear interpolation and 0 outside."""
    _, height, width = padded.shape
    shift_x, shift_y = round(params.shift[0] * width), round(params.shift[1] * height)
    centre_x, centre_y = (width - 1) / 2, (height - 1) / 2
    angle = math.radians(params.degrees)
    moved = np.zeros_like(padded)
    for y in range(height):
        for x in range(width):
            right, down = x - centre_x - shift_x, y - centre_y - shift_y
            from_x = (math.cos(angle) * right + math.sin(angle) * down) / params.scale + centre_x
            from_y = (-math.sin(angle) * right + math.cos(angle) * down) / params.scale + centre_y
            left, top = math.floor(from_x), math.floor(from_y)
            for row, row_share in ((top, 1 - (from_y - top)), (top + 1, from_y - top)):
                for column, column_share in ((left, 1 - (from_x - left)), (left + 1, from_x - left)):
                    if 0 <= row < height and 0 <= column < width:
                        moved[:, y, x] += row_share * column_share * padded[:, row, column]
    return moved


def _blur(image: np.ndarray, sigma: float) -> np.ndarray:
    weights = np.array([math.exp(-0.5 * (d / sigma) ** 2) for d in (-2, -1, 0, 1, 2)])
    weights /= weights.sum()
    _, height, width = image.shape
    padded = np.pad(image, ((0, 0), (2, 2), (2, 2)), mode="reflect")
    result = np.zeros_like(image)
    for down in range(5):
        for across in range(5):
            result += weights[down] * weights[across] * padded[:, down : down + height, across : across + width]
    return result
