"""Where autocast has no say: what keeps all its digits, and casts that are made for many tensors at once."""

from __future__ import annotations

from collections.abc import Sequence
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


def cast_together(values: Sequence[Tensor], dtypes: Sequence[torch.dtype]) -> list[Tensor]:
    """Return tensors in other dtypes, on a GPU by few kernels; those that have theirs already as they are.

    >>> [value.dtype for value in cast_together([torch.ones(1), torch.ones(1).half()], [torch.half, torch.half])]
    [torch.float16, torch.float16]
    """
    cast = list(values)
    places = [place for place, dtype in enumerate(dtypes) if values[place].dtype != dtype]
    if places:
        found = [torch.empty_like(values[place], dtype=dtypes[place]) for place in places]
        torch._foreach_copy_(found, [values[place] for place in places])
        for place, value in zip(places, found, strict=True):
            cast[place] = value
    return cast
