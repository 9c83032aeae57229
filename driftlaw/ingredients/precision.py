"""Where autocast has no say: similarities, and images on their way to the network, keep all their digits."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch
from torch import Tensor


def full_precision(like: Tensor) -> AbstractContextManager[None]:
    """Inside, products and convolutions on the device of ``like`` are computed in the dtype of what goes in."""
    return torch.autocast(like.device.type, enabled=False)


def promoted(values: Tensor) -> Tensor:
    """Return values of 16 bits as float32, and others as they are.

    >>> promoted(torch.ones(1, dtype=torch.bfloat16)).dtype, promoted(torch.ones(1, dtype=torch.float64)).dtype
    (torch.float32, torch.float64)
    """
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values
