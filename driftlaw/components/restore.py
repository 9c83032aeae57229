"""Stochastic restore: now and then a weight goes back to where it came from."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


@torch.no_grad()
def restore_some(parameters: Iterable[Tensor], originals: Iterable[Tensor], *, probability: float, seed: int) -> None:
    """Set every single weight back to its original with the given probability, each drawn for itself.

    Args:
        parameters: what has moved; changed in place.
        originals: tensors of the same shapes, in the same order.
        probability: of a weight to go back.
        seed: of the draws, which are made where the parameters are, so that no device waits for another.
    """
    generator: torch.Generator | None = None
    for value, original in zip(parameters, originals, strict=True):
        if generator is None:
            generator = torch.Generator(value.device).manual_seed(seed)
        goes_back = torch.rand(value.shape, generator=generator, device=value.device) < probability
        value.copy_(torch.where(goes_back, original, value))
