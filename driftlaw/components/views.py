"""Views of images with random parameters per image: weak and strong ones for contrastive methods, shuffled patches.

All parameters are drawn from one CPU generator and copied to the GPU. Nothing is read back: the host knows which images
an operation applies to before the device sees it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

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
"""Color jitter: operation, and the range of its amount (strengths 0.4, 0.4, 0.4 and 0.1)."""
JITTER_SHARE, GRAYSCALE_SHARE, BLUR_SHARE, FLIP_SHARE = 0.8, 0.2, 0.5, 0.5  # of the images
BLUR_SIGMA = (0.1, 2.0)  # of MoCo v2, in pixels
BLUR_RADIUS = 6  # pixels, three times the largest sigma


@dataclass(frozen=True)
class StrongAugmentParams:
    """Random parameters of the strong views of n images, as CPU tensors.

    Attributes:
        jittered: (n,), True if the color of an image changes.
        order: (n, 4), indices of the operations of ``JITTER`` in the order of application.
        amounts: (n, 4), amount of each operation of ``JITTER``.
        grayscale: (n,), True if an image is converted to grayscale.
        blurred: (n,), True if an image is blurred.
        sigmas: (n,), standard deviation of the blur, in pixels.
        flipped: (n,), True if an image is flipped horizontally.
    """

    jittered: Tensor
    order: Tensor
    amounts: Tensor
    grayscale: Tensor
    blurred: Tensor
    sigmas: Tensor
    flipped: Tensor

    @classmethod
    def from_generator(cls, count: int, generator: torch.Generator) -> Self:
        """Draw all parameters for ``count`` images, in a fixed order, from a CPU generator."""

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
    """Return (count,), True for images to flip, drawn from a CPU generator."""
    return torch.rand(count, generator=generator, dtype=torch.float64) < FLIP_SHARE


@torch.no_grad()
def weak_view(images: Tensor, flipped: Tensor) -> Tensor:
    """Return images (n, c, h, w), flipped horizontally where ``flipped`` (n,) is True."""
    view = images.clone()
    _apply(view, flipped, lambda selected: selected.flip(3))
    return view


@torch.no_grad()
def strong_view(images: Tensor, params: StrongAugmentParams) -> Tensor:
    """Return images (n, c, h, w) in [0, 1] with color jitter, grayscale, blur and flip as given by ``params``."""
    view = images.clamp(0, 1)
    for position in range(len(JITTER)):
        for number, (operation, *_) in enumerate(JITTER.values()):
            selected = params.jittered & (params.order[:, position] == number)
            _apply(view, selected, operation, params.amounts[:, number])
    _apply(view, params.grayscale, color.to_grayscale)
    _apply(view, params.blurred, _blur, params.sigmas)
    _apply(view, params.flipped, lambda selected: selected.flip(3))
    return view


@torch.no_grad()
def shuffle_patches(images: Tensor, order: Tensor, patches: int) -> Tensor:
    """Return images (n, c, h, w) whose patches are permuted; patch k of image i is patch ``order[i, k]`` of the input.

    An image whose sides are no multiples of ``patches`` is resized to the next smaller ones, and back.

    Args:
        images: (n, c, h, w).
        order: (n, patches²), a permutation per image; patches are counted row by row.
        patches: number of patches per side.

    >>> shuffle_patches(torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]), torch.tensor([[3, 0, 1, 2]]), 2).flatten().tolist()
    [4.0, 1.0, 2.0, 3.0]
    """
    size = images.shape[2:]
    rounded = tuple(max(side // patches, 1) * patches for side in size)
    if rounded != size:
        images = F.interpolate(images, rounded, mode="bilinear", antialias=True)
    cells = images.unflatten(3, (patches, -1)).unflatten(2, (patches, -1)).permute(0, 2, 4, 1, 3, 5)
    shuffled = cells.flatten(1, 2).take_along_dim(order.view(*order.shape, 1, 1, 1), dim=1)
    images = shuffled.unflatten(1, (patches, patches)).permute(0, 3, 1, 4, 2, 5).reshape(images.shape)
    return images if rounded == size else F.interpolate(images, size, mode="bilinear", antialias=True)


def _apply(view: Tensor, selected: Tensor, operation: Callable[..., Tensor], amounts: Tensor | None = None) -> None:
    """Replace the selected images by operation(images) or operation(images, amounts), in place."""
    indices = selected.nonzero().flatten()
    if len(indices) == 0:
        return
    args = () if amounts is None else (amounts[indices].view(-1, 1, 1, 1).to(view, non_blocking=True),)
    indices = indices.to(view.device, non_blocking=True)
    view.index_copy_(0, indices, operation(view.index_select(0, indices), *args))


def _blur(images: Tensor, sigmas: Tensor) -> Tensor:
    """Blur each image with its own Gaussian, with edge values replicated outside."""
    distances = torch.arange(-BLUR_RADIUS, BLUR_RADIUS + 1, dtype=images.dtype, device=images.device)
    weights = torch.exp(-0.5 * (distances / sigmas).square())
    weights = weights / weights.sum(dim=3, keepdim=True)
    for dim, padding in ((2, (0, 0, BLUR_RADIUS, BLUR_RADIUS)), (3, (BLUR_RADIUS, BLUR_RADIUS, 0, 0))):
        padded = F.pad(images, padding, mode="replicate")
        total = torch.zeros_like(images)
        for offset in range(2 * BLUR_RADIUS + 1):
            total.addcmul_(padded.narrow(dim, offset, images.shape[dim]), weights[..., offset : offset + 1])
        images = total
    return images
