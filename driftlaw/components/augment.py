"""The augmentation that LAW, CoTTA, RMT and ROID share: one set of random parameters per batch.

The ranges are those of the published pipeline: color jitter in random order, a small affine transformation, a slight
blur, a horizontal flip and weak noise. All parameters are drawn from one CPU generator as plain numbers, so that the
host never waits for a GPU.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from driftlaw.components import color
from driftlaw.components.sample_weights import masked_mean
from driftlaw.execution.precision import autocast_disabled

JITTER: dict[str, tuple[Callable[[Tensor, float], Tensor], float, float]] = {
    "brightness": (color.brightness, 0.6, 1.4),
    "contrast": (color.contrast, 0.7, 1.3),
    "saturation": (color.saturation, 0.5, 1.5),
    "hue": (color.hue, -0.06, 0.06),
    "gamma": (color.gamma, 0.7, 1.3),
}
"""Color jitter: operation, and the range of its amount."""
ROTATION = 15.0  # degrees, in both directions
TRANSLATION = 1 / 16  # of the image size after padding by half on every side, in whole pixels
SCALE = (0.9, 1.1)
BLUR_SIGMA = (0.001, 0.5)
NOISE = 0.005


@dataclass(frozen=True)
class AugmentParams:
    """Random parameters of the augmentation of one batch.

    Attributes:
        jitter: pairs (operation, amount), in the order of application.
        degrees: rotation angle.
        shift: (x, y), relative to the padded size, each in [−1/16, 1/16].
        scale: scale factor.
        sigma: standard deviation of the blur, in pixels.
        flip: True if the images are flipped horizontally.
        noise_seed: seed of the added noise.
    """

    jitter: tuple[tuple[str, float], ...]
    degrees: float
    shift: tuple[float, float]
    scale: float
    sigma: float
    flip: bool
    noise_seed: int

    @classmethod
    def from_generator(cls, generator: torch.Generator) -> Self:
        """Draw all parameters, in a fixed order, from a CPU generator."""

        def uniform(low: float, high: float) -> float:
            return low + (high - low) * float(torch.rand((), generator=generator, dtype=torch.float64))

        names = [list(JITTER)[index] for index in torch.randperm(len(JITTER), generator=generator)]
        return cls(
            jitter=tuple((name, uniform(*JITTER[name][1:])) for name in names),
            degrees=uniform(-ROTATION, ROTATION),
            shift=(uniform(-TRANSLATION, TRANSLATION), uniform(-TRANSLATION, TRANSLATION)),
            scale=uniform(*SCALE),
            sigma=uniform(*BLUR_SIGMA),
            flip=uniform(0, 1) < 0.5,
            noise_seed=int(torch.randint(2**62, (), generator=generator)),
        )


Align = Callable[[Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Augmentation:
    """An augmentation of one batch: maps its images to the augmented ones.

    Attributes:
        params: the random parameters.
        sharp: see `augment`.
        align: `move_back` with these parameters; None if predictions need not be moved.
    """

    params: AugmentParams
    sharp: bool = False
    align: Align | None = None

    def __call__(self, images: Tensor) -> Tensor:
        """Return the augmented images."""
        return augment(images, self.params, sharp=self.sharp)


def draw_augmentation(
    images: Tensor, generator: torch.Generator, dense: str | None, *, sharp: bool = False
) -> Augmentation:
    """Draw the augmentation of a batch.

    Args:
        images: the batch; only its size is used.
        generator: a CPU generator.
        dense: for logits per pixel, ``photometric`` or ``geometric``, see ``AugmentationSettings``; otherwise None.
        sharp: see `augment`.
    """
    params = AugmentParams.from_generator(generator)
    if dense == "photometric":
        params = replace(params, degrees=0.0, shift=(0.0, 0.0), scale=1.0, flip=False)
    align = partial(move_back, params=params, size=images.shape[2:]) if dense == "geometric" else None
    return Augmentation(params, sharp, align)


def augment(images: Tensor, params: AugmentParams, *, sharp: bool = False) -> Tensor:
    """Return images (n, c, h, w) in [0, 1], all augmented with the same parameters, without a gradient.

    Args:
        images: the batch.
        params: the random parameters.
        sharp: leave out blur and noise, and pad by reflection instead of with edge values, as ROID does.

    >>> params = AugmentParams.from_generator(torch.Generator().manual_seed(0))
    >>> augment(torch.rand(2, 3, 32, 32), params).shape
    torch.Size([2, 3, 32, 32])
    """
    channels_last = images.is_contiguous(memory_format=torch.channels_last)
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    with torch.no_grad(), autocast_disabled(images):
        images = images.clamp(0, 1)
        for name, amount in params.jitter:
            images = JITTER[name][0](images, amount)
        images = _transform(images, params, sharp)
        if params.flip:
            images = images.flip(3)
        if sharp:
            return images.clamp(0, 1).contiguous(memory_format=memory_format)
        generator = torch.Generator(images.device).manual_seed(params.noise_seed)
        noise = torch.randn(images.shape, generator=generator, device=images.device, dtype=images.dtype)
        return (images + NOISE * noise).clamp(0, 1).contiguous(memory_format=memory_format)


def _transform(images: Tensor, params: AugmentParams, sharp: bool) -> Tensor:
    """Rotate, shift and scale about the center, then blur with a 5×5 Gaussian unless ``sharp``.

    The published pipelines pad by half the size, transform, blur and crop the center. The center never samples beyond
    that padding, so sampling the unpadded image with border or reflected values gives the same result.
    """
    height, width = images.shape[-2:]
    margin = 0 if sharp else 2  # pixels for the blur
    shift = [round(relative * 2 * size) for relative, size in zip(params.shift, (width, height), strict=True)]
    # The points that output pixels are sampled from.
    rows = torch.arange(-margin, height + margin, dtype=images.dtype, device=images.device)
    columns = torch.arange(-margin, width + margin, dtype=images.dtype, device=images.device)
    rows, columns = rows - (height - 1) / 2 - shift[1], columns - (width - 1) / 2 - shift[0]
    row, column = torch.meshgrid(rows, columns, indexing="ij")
    angle = math.radians(params.degrees)
    cosine, sine = math.cos(angle) / params.scale, math.sin(angle) / params.scale
    x, y = cosine * column + sine * row + (width - 1) / 2, -sine * column + cosine * row + (height - 1) / 2
    if sharp:  # -1 and 1 are the centers of the outermost pixels, about which padding reflects
        x, y = 2 * x / max(width - 1, 1) - 1, 2 * y / max(height - 1, 1) - 1
    else:
        x, y = (2 * x + 1) / width - 1, (2 * y + 1) / height - 1
    grid = torch.stack([x, y], dim=-1).expand(len(images), -1, -1, -1)
    padding = "reflection" if sharp else "border"
    transformed = F.grid_sample(images, grid, padding_mode=padding, align_corners=sharp)
    return transformed if sharp else _blur(transformed, params.sigma)


def aligned(logits: Tensor, align: Align | None) -> tuple[Tensor, Tensor | None]:
    """Return logits of augmented images at the pixels of the images, and a mask of those that have one; None: all."""
    return (logits, None) if align is None else align(logits)


def aligned_mean(loss: Callable[..., Tensor], target: Tensor, augmented_logits: Tensor, align: Align | None) -> Tensor:
    """Return the mean of a loss of ``components.losses`` between two predictions, over pixels that both show."""
    if align is None:
        return loss(target, augmented_logits)
    moved, visible = align(augmented_logits)
    return masked_mean(loss(target, moved, reduction="none"), visible)


def move_back(logits: Tensor, params: AugmentParams, size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return logits of augmented images at the pixels of the images, and a mask of the pixels that have one.

    The logits may have a lower resolution than the images; they are sampled bilinearly at their own. The mask is False
    where the augmentation moved a pixel out of the image.

    Args:
        logits: (n, classes, h, w), of the result of `augment`.
        params: the parameters of the augmentation.
        size: height and width of the images.

    Returns:
        logits (n, classes, h, w), and a mask (n·h·w,) in the order of `driftlaw.dense.pixels`.
    """
    (height, width), (rows, columns) = size, logits.shape[2:]
    # Centers of the logits, in pixels of the images from their center. Where augment() moves them is computed next.
    y = (torch.arange(rows, dtype=logits.dtype, device=logits.device) + 0.5) * (height / rows) - height / 2
    x = (torch.arange(columns, dtype=logits.dtype, device=logits.device) + 0.5) * (width / columns) - width / 2
    row, column = torch.meshgrid(y, x, indexing="ij")
    angle = math.radians(params.degrees)
    cosine, sine = params.scale * math.cos(angle), params.scale * math.sin(angle)
    shift = [round(relative * 2 * side) for relative, side in zip(params.shift, (width, height), strict=True)]
    x, y = cosine * column - sine * row + shift[0], sine * column + cosine * row + shift[1]
    x, y = (-x if params.flip else x) * (2 / width), y * (2 / height)
    grid = torch.stack([x, y], dim=-1).expand(len(logits), -1, -1, -1)
    moved = F.grid_sample(logits, grid, padding_mode="border", align_corners=False)
    return moved, ((x.abs() <= 1) & (y.abs() <= 1)).expand(len(logits), -1, -1).flatten()


def _blur(images: Tensor, sigma: float) -> Tensor:
    weights = [math.exp(-0.5 * (distance / sigma) ** 2) for distance in (-2, -1, 0, 1, 2)]
    # Copying a list to a GPU would make the host wait; new_full passes each number as a kernel argument.
    kernel = torch.stack([images.new_full((), value / sum(weights)) for value in weights])
    channels = images.shape[1]
    horizontal = kernel.view(1, 1, 1, 5).repeat(channels, 1, 1, 1)
    vertical = kernel.view(1, 1, 5, 1).repeat(channels, 1, 1, 1)
    return F.conv2d(F.conv2d(images, horizontal, groups=channels), vertical, groups=channels)
