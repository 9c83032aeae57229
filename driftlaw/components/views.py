"""Weak and strong views of images, as contrastive methods use them: every image has a draw of its own.

All draws come from one CPU generator and are told to a GPU, which is never asked anything: which images an operation is
for is known before the device sees it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from driftlaw.components import color

JITTER: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], float, float]] = {
    "brightness": (color.brightness, 0.6, 1.4),
    "contrast": (color.contrast, 0.6, 1.4),
    "saturation": (color.saturation, 0.6, 1.4),
    "hue": (color.hue, -0.1, 0.1),
}
"""The colour jitter: operation, and the range of its amount (0.4, 0.4, 0.4 and 0.1 either way)."""
JITTER_SHARE, GRAYSCALE_SHARE, BLUR_SHARE, FLIP_SHARE = 0.8, 0.2, 0.5, 0.5  # of the images
BLUR_SIGMA = (0.1, 2.0)  # MoCo v2's, in pixels
BLUR_REACH = 6  # pixels either way, three times the largest sigma


@dataclass(frozen=True)
class StrongAugmentParams:
    """What was drawn for the strong views of n images; all tensors are the CPU's.

    Attributes:
        jittered: (n,), whether the color of an image change.
        order: (n, 4), the operations of ``JITTER`` by number, in the order in which an image meets them.
        amounts: (n, 4), the amount of each operation of ``JITTER``.
        grayscale: (n,), whether an image loses its color.
        blurred: (n,).
        sigmas: (n,), of the blur.
        flipped: (n,), left to right.
    """

    jittered: Tensor
    order: Tensor
    amounts: Tensor
    grayscale: Tensor
    blurred: Tensor
    sigmas: Tensor
    flipped: Tensor

    @classmethod
    def from_generator(cls, count: int, generator: torch.Generator) -> StrongAugmentParams:
        """Draw everything for ``count`` images, in a fixed order, from a CPU generator."""

        def uniform(*shape: int) -> Tensor:
            return torch.rand(count, *shape, generator=generator, dtype=torch.float64)

        low, high = torch.tensor([limits for _, *limits in JITTER.values()], dtype=torch.float64).T
        return cls(
            jittered=uniform() < JITTER_SHARE,
            order=uniform(len(JITTER)).argsort(dim=1),
            amounts=low + (high - low) * uniform(len(JITTER)),
            grayscale=uniform() < GRAYSCALE_SHARE,
            blurred=uniform() < BLUR_SHARE,
            sigmas=BLUR_SIGMA[0] + (BLUR_SIGMA[1] - BLUR_SIGMA[0]) * uniform(),
            flipped=draw_flips(count, generator),
        )


def draw_flips(count: int, generator: torch.Generator) -> Tensor:
    """Return (count,), which images are flipped, drawn from a CPU generator."""
    return torch.rand(count, generator=generator, dtype=torch.float64) < FLIP_SHARE


@torch.no_grad()
def weak_view(images: Tensor, flipped: Tensor) -> Tensor:
    """Return images (n, c, h, w), those of ``flipped`` (n,) left to right."""
    view = images.clone()
    _change(view, flipped, lambda some: some.flip(3))
    return view


@torch.no_grad()
def strong_view(images: Tensor, draw: StrongAugmentParams) -> Tensor:
    """Return images (n, c, h, w) in [0, 1] with their color jittered or taken away, blurred and flipped as drawn."""
    view = images.clamp(0, 1)
    for place in range(len(JITTER)):
        for number, (operation, *_) in enumerate(JITTER.values()):
            chosen = draw.jittered & (draw.order[:, place] == number)
            _change(view, chosen, operation, draw.amounts[:, number])
    _change(view, draw.grayscale, color.to_grayscale)
    _change(view, draw.blurred, _blur, draw.sigmas)
    _change(view, draw.flipped, lambda some: some.flip(3))
    return view


def _change(view: Tensor, chosen: Tensor, operation: Callable[..., Tensor], amounts: Tensor | None = None) -> None:
    """Put operation(images) or operation(images, their amounts) in the place of the chosen images."""
    places = chosen.nonzero().flatten()
    if len(places) == 0:
        return
    told = () if amounts is None else (amounts[places].view(-1, 1, 1, 1).to(view, non_blocking=True),)
    places = places.to(view.device, non_blocking=True)
    view.index_copy_(0, places, operation(view.index_select(0, places), *told))


def _blur(images: Tensor, sigmas: Tensor) -> Tensor:
    """Blur each image with a Gaussian of its own; beyond the edge its last pixels go on."""
    distances = torch.arange(-BLUR_REACH, BLUR_REACH + 1, dtype=images.dtype, device=images.device)
    weights = torch.exp(-0.5 * (distances / sigmas).square())
    weights = weights / weights.sum(dim=3, keepdim=True)
    for dim in (2, 3):
        images = _weighed_along(images, weights, dim)
    return images


def _weighed_along(images: Tensor, weights: Tensor, dim: int) -> Tensor:
    size, reach = images.shape[dim], BLUR_REACH
    padded = F.pad(images, (reach, reach, 0, 0) if dim == 3 else (0, 0, reach, reach), mode="replicate")
    total = torch.zeros_like(images)
    for place in range(2 * reach + 1):
        total.addcmul_(padded.narrow(dim, place, size), weights[..., place : place + 1])
    return total
