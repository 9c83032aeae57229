"""Precision: bf16 autocast for the passes of a network, and exceptions from it."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor

from driftlaw import hardware


def use_bf16(mode: str, device: torch.device, dtype: torch.dtype) -> bool:
    """Return True if passes should run under bf16 autocast: if ``mode`` is ``bf16``, or ``auto`` on a capable GPU.

    Only float32 models are cast, and an autocast of the caller takes precedence.
    """
    if mode == "float32" or torch.is_autocast_enabled(device.type) or dtype != torch.float32:
        return False
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return mode == "bf16" and hardware.runs_bf16()


@contextmanager
def autocast_bf16(enabled: bool, device: torch.device) -> Iterator[None]:
    """Context manager for bf16 autocast, if enabled, with autocast's cache turned off.

    A cached cast would still be used after an update of the weight.
    """
    previous = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    autocast = torch.autocast(device.type, torch.bfloat16, cache_enabled=False) if enabled else nullcontext()
    try:
        with autocast:
            yield
    finally:
        torch.set_autocast_cache_enabled(previous)


def autocast_disabled(like: Tensor) -> AbstractContextManager[None]:
    """Context manager that turns autocast off on the device of ``like``."""
    return torch.autocast(like.device.type, enabled=False)


def at_least_float32(values: Tensor) -> Tensor:
    """Return 16-bit values as float32, and others unchanged.

    >>> at_least_float32(torch.ones(1, dtype=torch.bfloat16)).dtype
    torch.float32
    >>> at_least_float32(torch.ones(1, dtype=torch.float64)).dtype
    torch.float64
    """
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values


def foreach_cast(values: Sequence[Tensor], dtypes: Sequence[torch.dtype]) -> list[Tensor]:
    """Return tensors in other dtypes, cast by few kernels; tensors that have their dtype already are not copied.

    >>> [value.dtype for value in foreach_cast([torch.ones(1), torch.ones(1).half()], [torch.half, torch.half])]
    [torch.float16, torch.float16]
    """
    result = list(values)
    indices = [index for index, dtype in enumerate(dtypes) if values[index].dtype != dtype]
    if indices:
        casts = [torch.empty_like(values[index], dtype=dtypes[index]) for index in indices]
        torch._foreach_copy_(casts, [values[index] for index in indices])
        for index, value in zip(indices, casts, strict=True):
            result[index] = value
    return result
