"""The corruptions for one image at a time, with loops, numpy and Pillow: slow, but readable as definitions.

An image is uint8 of shape (h, w, 3), and so is the result. The parameters of a severity come from the registry. Random
numbers come from ``ImageRng``. A test may pass one with known numbers and compare pixel by pixel.
"""

from __future__ import annotations

import io
import math
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image

FROST = Path(__file__).resolve().parents[2] / "driftlaw" / "assets" / "frost"


class ImageRng:
    """Random numbers of one image; ``purpose`` names their use, for subclasses with known numbers."""

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def normal(self, purpose: str, shape: tuple[int, ...]) -> np.ndarray:
        return self.generator.normal(size=shape)

    def uniform(self, purpose: str, shape: tuple[int, ...]) -> np.ndarray:
        return self.generator.uniform(size=shape)

    def randint(self, purpose: str, limit: int) -> int:
        return int(self.generator.integers(limit))

    def angle(self, purpose: str, low: float, high: float) -> float:
        return float(self.generator.uniform(low, high))

    def offset(self, purpose: str, pixel: tuple[int, int], shape: tuple[int, int], reach: int) -> tuple[int, int]:
        down, across = self.generator.integers(-reach, reach, size=2)
        return down, across


def corrupt(image: np.ndarray, name: str, parameters: tuple[float, ...], rng: ImageRng) -> np.ndarray:
    """Return one corrupted image; values are clipped and truncated to integers."""
    return np.uint8(corrupt_unrounded(image, name, parameters, rng))


def corrupt_unrounded(image: np.ndarray, name: str, parameters: tuple[float, ...], rng: ImageRng) -> np.ndarray:
    """Return one corrupted image, clipped to [0, 255] and not rounded."""
    return np.clip(globals()[name](image, parameters, rng), 0, 255)


# --- noise


def gaussian_noise(image, parameters, rng):
    x = image / 255.0
    return np.clip(x + parameters[0] * rng.normal("noise", x.shape), 0, 1) * 255


def shot_noise(image, parameters, rng):
    rate = parameters[0]
    return np.clip(rng.generator.poisson(image / 255.0 * rate) / rate, 0, 1) * 255


def impulse_noise(image, parameters, rng):
    x = image / 255.0
    hit = rng.generator.uniform(size=x.shape) < parameters[0]
    salt = rng.generator.uniform(size=x.shape) < 0.5
    x[hit & salt] = 1
    x[hit & ~salt] = 0
    return x * 255


def speckle_noise(image, parameters, rng):
    x = image / 255.0
    return np.clip(x + x * parameters[0] * rng.normal("noise", x.shape), 0, 1) * 255


# --- blur


def gaussian_filter(plane, sigma, mode="edge", truncate=4.0):
    """Blur an array (h, w, …) along its rows, then its columns."""
    radius = int(truncate * sigma + 0.5)
    if radius == 0:
        return plane
    offsets = np.arange(-radius, radius + 1)
    weights = np.exp(-0.5 * (offsets / sigma) ** 2)
    weights /= weights.sum()
    for axis in (0, 1):
        size = plane.shape[axis]
        pad = [(0, 0)] * plane.ndim
        pad[axis] = (radius, radius)
        wide = np.pad(plane, pad, mode=mode)
        cuts = [wide[k : k + size] if axis == 0 else wide[:, k : k + size] for k in range(len(weights))]
        plane = sum(weight * cut for weight, cut in zip(weights, cuts, strict=True))
    return plane


def gaussian_blur(image, parameters, rng):
    return np.clip(gaussian_filter(image / 255.0, parameters[0]), 0, 1) * 255


def disk(radius, alias_blur):
    reach, soft = (8, 1) if radius <= 8 else (int(radius), 2)
    kernel = np.zeros((2 * reach + 1, 2 * reach + 1))
    for y in range(-reach, reach + 1):
        for x in range(-reach, reach + 1):
            if x * x + y * y <= radius * radius:
                kernel[y + reach, x + reach] = 1
    kernel /= kernel.sum()
    rim = np.exp(-0.5 * (np.arange(-soft, soft + 1) / alias_blur) ** 2)
    rim /= rim.sum()
    return correlate(correlate(kernel, rim[:, None]), rim[None, :])


def correlate(plane, kernel):
    """Correlate an array (h, w, …) with a kernel, mirrored at the edge pixels."""
    down, across = kernel.shape[0] // 2, kernel.shape[1] // 2
    height, width = plane.shape[:2]
    wide = np.pad(plane, [(down, down), (across, across)] + [(0, 0)] * (plane.ndim - 2), mode="reflect")
    total = np.zeros(plane.shape)
    for y in range(kernel.shape[0]):
        for x in range(kernel.shape[1]):
            if abs(kernel[y, x]) > 1e-9:
                total += kernel[y, x] * wide[y : y + height, x : x + width]
    return total


def defocus_blur(image, parameters, rng):
    radius, alias_blur = parameters
    return np.clip(correlate(image / 255.0, disk(radius, alias_blur)), 0, 1) * 255


def glass_blur(image, parameters, rng):
    sigma, reach, rounds = parameters[0], int(parameters[1]), int(parameters[2])
    x = np.uint8(gaussian_filter(image / 255.0, sigma) * 255 + 1e-9)
    height, width = x.shape[:2]
    for turn in range(rounds):
        for h in range(height - reach, reach, -1):
            for w in range(width - reach, reach, -1):
                # As in the original code, which swaps two views: the neighbor keeps its value.
                down, across = rng.offset(f"jumps {turn}", (h, w), (height, width), reach)
                x[h, w] = x[h + down, w + across]
    return np.clip(gaussian_filter(x / 255.0, sigma), 0, 1) * 255


def line_blur(image, radius, sigma, degrees):
    """Blur along a line, as ImageMagick does."""
    taps = 2 * math.ceil(radius) + 1
    weights = np.exp(-0.5 * (np.arange(taps) / sigma) ** 2)
    weights /= weights.sum()
    height, width = image.shape[:2]
    total = np.zeros(image.shape)
    for tap, weight in enumerate(weights):
        across = math.ceil(tap * math.cos(math.radians(degrees)) - 0.5)
        down = math.ceil(tap * math.sin(math.radians(degrees)) - 0.5)
        rows = np.clip(np.arange(height) + down, 0, height - 1)
        columns = np.clip(np.arange(width) + across, 0, width - 1)
        total += weight * image[rows][:, columns]
    return np.floor(total + 1e-9)


def motion_blur(image, parameters, rng):
    return line_blur(image, *parameters, rng.angle("angle", -45, 45))


def clipped_zoom(image, factor):
    """Enlarge the center of an array (h, w, …) to the full size."""
    for axis in (0, 1):
        size = image.shape[axis]
        crop = math.ceil(size / factor)
        start = (size - crop) // 2
        stretched = round(crop * factor)
        trim = (stretched - size) // 2
        positions = np.linspace(0, crop - 1, stretched)[trim : trim + size]
        lower = np.minimum(positions.astype(int), crop - 1)
        upper = np.minimum(lower + 1, crop - 1)
        share = (positions - lower).reshape([-1, 1, 1][: image.ndim] if axis == 0 else [-1, 1][: image.ndim - 1])
        image = np.take(image, start + lower, axis) * (1 - share) + np.take(image, start + upper, axis) * share
    return image


def zoom_blur(image, parameters, rng):
    x = image / 255.0
    factors = np.arange(1, *parameters)
    total = x.copy()
    for factor in factors:
        total += clipped_zoom(x, factor)
    return np.clip(total / (len(factors) + 1), 0, 1) * 255


# --- weather


def snow(image, parameters, rng):
    mean, deviation, zoom, threshold, radius, sigma, share = parameters
    x = image / 255.0
    layer = mean + deviation * rng.normal("flakes", x.shape[:2])
    layer = clipped_zoom(layer, zoom)
    layer[layer < threshold] = 0
    layer = np.uint8(np.clip(layer, 0, 1) * 255)
    layer = line_blur(layer, radius, sigma, rng.angle("angle", -135, -45))[..., None] / 255.0
    gray = (x @ np.array([0.299, 0.587, 0.114]))[..., None]
    x = share * x + (1 - share) * np.maximum(x, gray * 1.5 + 0.5)
    return np.clip(x + layer + np.rot90(layer, k=2), 0, 1) * 255


@lru_cache(maxsize=8)
def frost_photo(number, large):
    names = ["frost1.webp", "frost2.webp", "frost2.webp", "frost4.jpg", "frost5.jpg"]
    path = FROST / "full_size" / names[number] if large else FROST / f"frost{number + 1}.png"
    return np.asarray(Image.open(path).convert("RGB"))


def frost(image, parameters, rng):
    height, width = image.shape[:2]
    photo = frost_photo(rng.randint("photograph", 5), max(height, width) > 64)
    scale = max(height / photo.shape[0], width / photo.shape[1])
    if scale > 1:
        size = (math.ceil(photo.shape[1] * scale), math.ceil(photo.shape[0] * scale))
        photo = np.asarray(Image.fromarray(photo).resize(size, Image.Resampling.BILINEAR))
    top = rng.randint("top", max(photo.shape[0] - height, 1))
    left = rng.randint("left", max(photo.shape[1] - width, 1))
    return parameters[0] * image + parameters[1] * photo[top : top + height, left : left + width]


def plasma(side, decay, rng):
    """Return plasma noise: the diamond-square algorithm with periodic borders."""
    heights = np.zeros((side, side))
    noise = iter(rng.uniform("plasma", (side * side,)) * 2 - 1)
    step, size = side, 100.0
    while step >= 2:
        half = step // 2
        for kind in ("squares", "level", "upright"):
            first_y, first_x = {"squares": (half, half), "level": (0, half), "upright": (half, 0)}[kind]
            around = [(-half, -half), (-half, half), (half, -half), (half, half)]
            if kind != "squares":
                around = [(-half, 0), (half, 0), (0, -half), (0, half)]
            for y in range(first_y, side, step):
                for x in range(first_x, side, step):
                    total = sum(heights[(y + dy) % side, (x + dx) % side] for dy, dx in around)
                    heights[y, x] = total / 4 + size * size * next(noise)
        step, size = half, size / decay
    heights -= heights.min()
    return heights / heights.max()


def fog(image, parameters, rng):
    amount, decay = parameters
    height, width = image.shape[:2]
    side = 1
    while side < max(height, width):
        side *= 2
    x = image / 255.0
    brightest = x.max()
    x = x + amount * plasma(side, decay, rng)[:height, :width, None]
    return np.clip(x * brightest / (brightest + amount), 0, 1) * 255


def rgb_to_hsv(x):
    value, darkest = x.max(2), x.min(2)
    spread = value - darkest
    safe = np.where(spread == 0, 1, spread)
    red, green, blue = x[..., 0], x[..., 1], x[..., 2]
    other = np.where(value == green, 2 + (blue - red) / safe, 4 + (red - green) / safe)
    hue = np.where(value == red, (green - blue) / safe, other)
    hue = np.where(spread == 0, 0, hue / 6 % 1)
    return hue, np.where(value == 0, 0, spread / np.where(value == 0, 1, value)), value


def hsv_to_rgb(hue, saturation, value):
    sector = np.floor(hue * 6)
    part = hue * 6 - sector
    p, q, t = value * (1 - saturation), value * (1 - part * saturation), value * (1 - (1 - part) * saturation)
    choices = [(value, t, p), (q, value, p), (p, value, t), (p, q, value), (t, p, value), (value, p, q)]
    return np.stack([np.choose(sector.astype(int) % 6, [choice[c] for choice in choices]) for c in range(3)], 2)


def brightness(image, parameters, rng):
    hue, saturation, value = rgb_to_hsv(image / 255.0)
    return np.clip(hsv_to_rgb(hue, saturation, np.clip(value + parameters[0], 0, 1)), 0, 1) * 255


def saturate(image, parameters, rng):
    hue, saturation, value = rgb_to_hsv(image / 255.0)
    return np.clip(hsv_to_rgb(hue, np.clip(saturation * parameters[0] + parameters[1], 0, 1), value), 0, 1) * 255


# --- spatter


def sobel(layer):
    wide = np.pad(layer.astype(int), 1, mode="edge")
    down, across = np.zeros(layer.shape, int), np.zeros(layer.shape, int)
    for y in range(3):
        for x in range(3):
            part = wide[y : y + layer.shape[0], x : x + layer.shape[1]]
            across += (x - 1) * (2 - abs(y - 1)) * part
            down += (y - 1) * (2 - abs(x - 1)) * part
    return across, down


def canny(layer, weak, strong):
    across, down = sobel(layer)
    size = np.pad(abs(across) + abs(down), 1)
    height, width = layer.shape
    candidates, edges = np.zeros(layer.shape, bool), np.zeros(layer.shape, bool)
    open_pixels = []
    for y in range(height):
        for x in range(width):
            middle, slope_y, slope_x = size[y + 1, x + 1], abs(down[y, x]), abs(across[y, x])
            if slope_y < slope_x * 0.414213562:
                ridge = middle > size[y + 1, x] and middle >= size[y + 1, x + 2]
            elif slope_y > slope_x * 2.414213562:
                ridge = middle > size[y, x + 1] and middle >= size[y + 2, x + 1]
            else:
                side = -1 if across[y, x] * down[y, x] < 0 else 1
                ridge = middle > size[y, x + 1 - side] and middle > size[y + 2, x + 1 + side]
            candidates[y, x] = ridge and middle > weak
            if ridge and middle > strong:
                edges[y, x] = True
                open_pixels.append((y, x))
    while open_pixels:
        y, x = open_pixels.pop()
        for v in range(max(y - 1, 0), min(y + 2, height)):
            for u in range(max(x - 1, 0), min(x + 2, width)):
                if candidates[v, u] and not edges[v, u]:
                    edges[v, u] = True
                    open_pixels.append((v, u))
    return edges


def distance_transform(edges):
    """Two sweeps with a 5×5 mask."""
    ahead = [(0, -1, 1.0), (-1, 0, 1.0), (-1, -1, 1.4), (-1, 1, 1.4)]
    ahead += [(-1, -2, 2.1969), (-1, 2, 2.1969), (-2, -1, 2.1969), (-2, 1, 2.1969)]
    height, width = edges.shape
    far = np.full((height + 4, width + 4), 1e4)
    far[2:-2, 2:-2][edges] = 0
    for sign, rows, columns in ((1, range(height), range(width)), (-1, range(height)[::-1], range(width)[::-1])):
        for y in rows:
            for x in columns:
                steps = [far[y + 2 + sign * dy, x + 2 + sign * dx] + length for dy, dx, length in ahead]
                far[y + 2, x + 2] = min(far[y + 2, x + 2], *steps)
    return far[2:-2, 2:-2]


def equalize(levels):
    histogram = np.bincount(levels.reshape(-1), minlength=256)
    first = int(levels.min())
    if histogram[first] == levels.size:
        return levels
    reached = np.cumsum(histogram) - histogram[first]
    return np.clip(np.rint(reached * (255 / (levels.size - histogram[first]))), 0, 255).astype(np.uint8)[levels]


def spatter(image, parameters, rng):
    mean, deviation, smoothing, threshold, strength, mud = parameters
    x = image / 255.0
    layer = gaussian_filter(mean + deviation * rng.normal("liquid", x.shape[:2]), smoothing)
    layer[layer < threshold] = 0
    if mud:
        cover = gaussian_filter((layer > threshold).astype(float), strength)[..., None]
        cover[cover < 0.8] = 0
        return np.clip(x * (1 - cover) + np.array([63, 42, 20]) / 255.0 * cover, 0, 1) * 255
    layer = np.uint8(layer * 255)
    box = np.full((3, 3), 1 / 9)
    distance = np.minimum(distance_transform(canny(layer, 50, 150)), 20)
    lit = equalize(np.uint8(correlate(distance, box) + 1e-6)).astype(float)
    lit = np.clip(correlate(lit, np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])), 0, 255)
    relief = layer * np.rint(correlate(lit, box))
    relief = relief / max(relief.max(), 1) * strength
    return np.clip(x + relief[..., None] * np.array([175, 238, 238]) / 255.0, 0, 1) * 255


# --- digital


def contrast(image, parameters, rng):
    x = image / 255.0
    means = x.mean((0, 1))
    return np.clip((x - means) * parameters[0] + means, 0, 1) * 255


def fold(index, size, about_centers):
    """Map an index into [0, size) by reflection."""
    if about_centers:
        period = max(2 * size - 2, 1)
        index = index % period
        return np.minimum(index, period - index) if size > 1 else index * 0
    index = index % (2 * size)
    return np.minimum(index, 2 * size - 1 - index)


def sample(image, columns, rows, about_centers):
    """Sample an image with bilinear interpolation at positions (h, w)."""
    height, width = image.shape[:2]
    left, top = np.floor(columns).astype(int), np.floor(rows).astype(int)
    total = np.zeros(image.shape)
    for dy in (0, 1):
        for dx in (0, 1):
            weight = (1 - abs(columns - left - dx)) * (1 - abs(rows - top - dy))
            y, x = fold(top + dy, height, about_centers), fold(left + dx, width, about_centers)
            total += weight[..., None] * image[y, x]
    return total


def elastic_transform(image, parameters, rng):
    amplitude, smoothing, reach = parameters
    x = image / 255.0
    height, width = x.shape[:2]
    center, side = np.array([width // 2, height // 2]), min(height, width) // 3
    corners = center + side * np.array([[1, 1], [1, -1], [-1, -1]])
    moved = corners + (rng.uniform("corners", (3, 2)) * 2 - 1) * reach
    back = np.linalg.solve(np.c_[moved, np.ones(3)], corners)
    columns, rows = np.meshgrid(np.arange(width), np.arange(height))
    positions = np.stack([columns, rows, np.ones_like(rows)], 2) @ back
    x = sample(x, positions[..., 0], positions[..., 1], True)
    if amplitude:
        shifts = rng.uniform("shifts", (2, height, width)) * 2 - 1
        across, down = (gaussian_filter(shift, smoothing, "symmetric", 3.0) * amplitude for shift in shifts)
        x = sample(x, columns + across, rows + down, False)
    return np.clip(x, 0, 1) * 255


def pixelate(image, parameters, rng):
    photo = Image.fromarray(image)
    small = (max(1, int(photo.width * parameters[0])), max(1, int(photo.height * parameters[0])))
    return np.asarray(photo.resize(small, Image.Resampling.BOX).resize(photo.size, Image.Resampling.BOX))


def jpeg_compression(image, parameters, rng):
    stored = io.BytesIO()
    Image.fromarray(image).save(stored, "JPEG", quality=int(parameters[0]))
    return np.asarray(Image.open(stored))
