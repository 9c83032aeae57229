"""The augmentation that LAW, CoTTA and RMT share: one draw a batch, applied to all of its images at once.

Numbers are those of the published pipeline: colour jitter in random order, a small affine move, a slight blur, a flip
and a little noise. All draws come from one CPU generator, as plain numbers, so that a GPU never waits for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from driftlaw.components import color
from driftlaw.execution.precision import autocast_disabled

JITTER_RANGES = {
    "brightness": (0.6, 1.4),
    "contrast": (0.7, 1.3),
    "saturation": (0.5, 1.5),
    "hue": (-0.06, 0.06),
    "gamma": (0.7, 1.3),
}
ROTATION = 15.0  # degrees either way
TRANSLATION = 1 / 16  # of the size padded by half on every side, in whole pixels
SCALE = (0.9, 1.1)
BLUR_SIGMA = (0.001, 0.5)
NOISE = 0.005


@dataclass(frozen=True)
class AugmentParams:
    """What was drawn for one batch.

    Attributes:
        jitter: (operation, amount), in the order in which they are applied.
        degrees: rotation.
        shift: (x, y) as shares of the padded size, each in [−1/16, 1/16].
        scale: enlargement.
        sigma: of the blur.
        flip: left to right.
        noise_seed: of the added noise.
    """

    jitter: tuple[tuple[str, float], ...]
    degrees: float
    shift: tuple[float, float]
    scale: float
    sigma: float
    flip: bool
    noise_seed: int

    @classmethod
    def from_generator(cls, generator: torch.Generator) -> AugmentParams:
        """Draw everything, in a fixed order, from a CPU generator."""

        def uniform(low: float, high: float) -> float:
            return low + (high - low) * float(torch.rand((), generator=generator, dtype=torch.float64))

        order = torch.randperm(len(JITTER_RANGES), generator=generator).tolist()
        names = list(JITTER_RANGES)
        return cls(
            jitter=tuple((names[i], uniform(*JITTER_RANGES[names[i]])) for i in order),
            degrees=uniform(-ROTATION, ROTATION),
            shift=(uniform(-TRANSLATION, TRANSLATION), uniform(-TRANSLATION, TRANSLATION)),
            scale=uniform(*SCALE),
            sigma=uniform(*BLUR_SIGMA),
            flip=uniform(0, 1) < 0.5,
            noise_seed=int(torch.randint(2**62, (), generator=generator)),
        )


def augment(images: Tensor, draw: AugmentParams) -> Tensor:
    """Return images (n, c, h, w) in [0, 1] with one draw applied to all of them; no gradient flows."""
    channels_last = images.is_contiguous(memory_format=torch.channels_last)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    with torch.no_grad(), autocast_disabled(images):
        images = images.clamp(0, 1)
        for name, amount in draw.jitter:
            images = _JITTER[name](images, amount)
        images = _move_and_blur(images, draw)
        if draw.flip:
            images = images.flip(3)
        noisy = (images + NOISE * _noise_like(images, draw.noise_seed)).clamp(0, 1)
        return noisy.contiguous(memory_format=layout)


def _noise_like(images: Tensor, seed: int) -> Tensor:
    generator = torch.Generator(images.device).manual_seed(seed)
    return torch.randn(images.shape, generator=generator, device=images.device, dtype=images.dtype)


_JITTER: dict[str, Callable[[Tensor, float], Tensor]] = {
    "brightness": color.brightness,
    "contrast": color.contrast,
    "saturation": color.saturation,
    "hue": color.hue,
    "gamma": color.gamma,
}


def _move_and_blur(images: Tensor, draw: AugmentParams) -> Tensor:
    """Rotate, shift and scale about the centre, then blur with a 5×5 Gaussian.

    The published pipeline pads by half the size with edge values, moves, blurs and crops the middle. No point of the
    middle is ever fetched from beyond that padding, so sampling the plain image with edge values gives the same.
    """
    if images.dtype == torch.float16 and images.device.type == "cpu":  # not every torch samples it there
        return _move_and_blur(images.float(), draw).to(images.dtype)
    height, width = images.shape[-2:]
    shift = [round(share * 2 * size) for share, size in zip(draw.shift, (width, height), strict=True)]
    x, y = _source_points(height, width, math.radians(draw.degrees), shift, draw.scale, images)
    grid = torch.stack([(2 * x + 1) / width - 1, (2 * y + 1) / height - 1], dim=-1)
    grid = grid.expand(len(images), -1, -1, -1)
    moved = F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)
    return _blur(moved, draw.sigma)


def _source_points(
    height: int, width: int, angle: float, shift: list[int], scale: float, like: Tensor
) -> tuple[Tensor, Tensor]:
    """Return where each pixel of the result, with a margin of 2 for the blur, is fetched from, in pixels."""
    rows = torch.arange(-2, height + 2, dtype=like.dtype, device=like.device) - (height - 1) / 2 - shift[1]
    columns = torch.arange(-2, width + 2, dtype=like.dtype, device=like.device) - (width - 1) / 2 - shift[0]
    y, x = torch.meshgrid(rows, columns, indexing="ij")
    cosine, sine = math.cos(angle) / scale, math.sin(angle) / scale
    return cosine * x + sine * y + (width - 1) / 2, -sine * x + cosine * y + (height - 1) / 2


def _blur(images: Tensor, sigma: float) -> Tensor:
    weights = [math.exp(-0.5 * (distance / sigma) ** 2) for distance in (-2, -1, 0, 1, 2)]
    # A tensor made of a list would be copied to a GPU, and waited for; a number goes with the kernel that writes it.
    kernel = torch.stack([images.new_full((), value / sum(weights)) for value in weights])
    channels = images.shape[1]
    across = kernel.view(1, 1, 1, 5).repeat(channels, 1, 1, 1)
    down = kernel.view(1, 1, 5, 1).repeat(channels, 1, 1, 1)
    return F.conv2d(F.conv2d(images, across, groups=channels), down, groups=channels)
