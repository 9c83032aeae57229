"""Profiling of a step: wall-clock time, FLOPs and peak memory."""

import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, TypeVar

import torch
from torch.utils.flop_counter import FlopCounterMode

CUDA_CONTEXT_BYTES = 2 * 2**30  # upper bound of what a process holds on a GPU besides its tensors

T = TypeVar("T")


@dataclass
class Timer:
    """Seconds measured by ``timed``, 0 until its block ends."""

    seconds: float = 0.0


@contextmanager
def timed(device: torch.device) -> Iterator[Timer]:
    """Context manager that measures the time of its block, including work still queued on the device.

    >>> with timed(torch.device("cpu")) as timer:
    ...     product = torch.rand(64, 64) @ torch.rand(64, 64)
    >>> timer.seconds > 0
    True
    """
    timer = Timer()
    _synchronize(device)
    start = time.perf_counter()
    yield timer
    _synchronize(device)
    timer.seconds = time.perf_counter() - start


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def count_flops(function: Callable[[], T]) -> tuple[T, int]:
    """Call ``function`` and return its result and its number of FLOPs, where a multiply-add is two.

    >>> _, flops = count_flops(lambda: torch.ones(2, 3) @ torch.ones(3, 5))
    >>> flops == 2 * 2 * 3 * 5
    True
    """
    # torch counts the weight gradient of a grouped convolution as that of a dense one.
    counter = FlopCounterMode(
        display=False, custom_mapping={torch.ops.aten.convolution_backward: _convolution_backward_flops}
    )
    # Counts per module are not needed, and torch 2.4 fails to track the modules of an adapter.
    counter.mod_tracker = _NoModuleTracker()  # type: ignore[assignment]
    with counter:
        result = function()
    return result, int(counter.get_total_flops())


class _NoModuleTracker:
    """Replacement for the module tracker of torch's FLOP counter that counts everything globally."""

    parents: ClassVar[frozenset[str]] = frozenset({"Global"})

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


def _convolution_backward_flops(
    grad_output: list[int], inputs: list[int], weight: list[int], *settings: Any, **others: Any
) -> int:
    """Return the FLOPs of a convolution's backward pass: those of its forward pass for each gradient computed."""
    *_, transposed, _output_padding, _groups, output_mask = settings
    positions = inputs if transposed else grad_output
    gradients = int(sum(output_mask[:2]))  # of the input and of the weight
    return 2 * positions[0] * prod(positions[2:]) * prod(weight) * gradients


def peak_bytes(device: torch.device) -> int:
    """Return the peak memory so far: allocated on the device for a GPU, resident in the process for a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def is_gpu_shared(device: torch.device) -> bool:
    """Return True if other processes use memory of this GPU, so that timings may be too long. False for a CPU."""
    if device.type != "cuda":
        return False
    free, total = torch.cuda.mem_get_info(device)
    return total - free - torch.cuda.memory_reserved(device) > CUDA_CONTEXT_BYTES
