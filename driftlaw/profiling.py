"""What a step costs and where it runs: seconds, FLOPs, memory, and what the machine can do."""

from __future__ import annotations

import functools
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from driftlaw import hardware as processor
from driftlaw.errors import UsageError

OWN_CONTEXT_BYTES = 2 * 2**30  # what a process holds on a GPU besides its tensors, generously


@dataclass
class Stopwatch:
    """The seconds of one timed stretch, filled in when it ends."""

    seconds: float = 0.0


@contextmanager
def timed(device: torch.device) -> Iterator[Stopwatch]:
    """Time what runs inside, work still queued on the device included."""
    watch = Stopwatch()
    _wait_for(device)
    start = time.perf_counter()
    yield watch
    _wait_for(device)
    watch.seconds = time.perf_counter() - start


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def count_flops(call: Callable[[], Any]) -> tuple[Any, int]:
    """Run ``call`` once under torch's FLOP counter; return what it returned and the operations, 2 a multiply-add."""
    # torch's own rule takes the weights' gradient of a grouped convolution for that of a dense one.
    put_right = {torch.ops.aten.convolution_backward: _convolution_backward_flops}
    counter = FlopCounterMode(display=False, custom_mapping=put_right)
    # It would say which module an operation is of, which nobody asks here, and torch 2.4 fails at it in an adapter.
    counter.mod_tracker = _NoModules()  # type: ignore[assignment]
    with counter:
        result = call()
    return result, int(counter.get_total_flops())


class _NoModules:
    """Tells torch's FLOP counter that all is done outside of any module."""

    parents: ClassVar[frozenset[str]] = frozenset({"Global"})

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


def _convolution_backward_flops(
    grad_output: list[int], inputs: list[int], weight: list[int], *settings: Any, **others: Any
) -> int:
    """Return the operations of a convolution's gradients: for each that is asked for, those of the forward pass."""
    *_, transposed, _output_padding, _groups, asked_for = settings
    places = inputs if transposed else grad_output
    return 2 * places[0] * prod(places[2:]) * prod(weight) * sum(asked_for[:2])


def peak_bytes(device: torch.device) -> int:
    """Return the most memory held so far: the device's on a GPU, the process's on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def shares_gpu(device: torch.device) -> bool:
    """Tell whether others hold memory on the GPU, whose steps then take longer than they would alone."""
    if device.type != "cuda":
        return False
    free, whole = torch.cuda.mem_get_info(device)
    return whole - free - torch.cuda.memory_reserved(device) > OWN_CONTEXT_BYTES


def pick_device(name: str) -> torch.device:
    """Return the device called ``name``; ``auto`` takes a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        first_line = str(error).splitlines()[0]
        able = "auto, cpu or cuda" if torch.cuda.is_available() else "auto or cpu"
        raise UsageError(f"device «{name}» cannot be used here ({first_line}): take {able}") from error
    return device


def environment(device: torch.device) -> dict[str, Any]:
    """Return what a record's header says of the software and the machine."""
    from driftlaw import __version__

    return {
        "driftlaw": __version__,
        "versions": {"python": platform.python_version(), "torch": str(torch.__version__), "numpy": numpy.__version__},
        "commit": _commit(),
        "device": {"type": device.type, "name": _device_name(device), "threads": torch.get_num_threads()},
    }


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


@functools.cache
def _commit() -> str | None:
    """Return the commit of the checkout this package lies in, with a + where files differ from it.

    A machine that receives the files without their history is told by ``DRIFTLAW_COMMIT``.
    """
    if os.environ.get("DRIFTLAW_COMMIT"):
        return os.environ["DRIFTLAW_COMMIT"]
    here = Path(__file__).parent
    answers = []
    for command in (
        ["rev-parse", "--show-toplevel"],
        ["rev-parse", "--short", "HEAD"],
        ["status", "--porcelain", "-uno"],
    ):
        try:
            done = subprocess.run(["git", "-C", str(here), *command], capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return None
        answers.append(done.stdout.strip())
    top, commit, changes = answers
    if Path(top) != here.parent:  # installed inside somebody else's checkout, whose commit says nothing of us
        return None
    return commit + ("+" if changes else "")


def can_train_in_bf16(device: torch.device) -> bool:
    """Return whether bf16 autocast really runs; a CPU is tried in a child process, as some announce it and then die."""
    return torch.cuda.is_bf16_supported() if device.type == "cuda" else processor.runs_bf16()


def usable_precision(wanted: Literal["auto", "bf16", "float32"], device: torch.device) -> Literal["bf16", "float32"]:
    """Return the precision to compute in: what is wanted where the device can, float32 elsewhere.

    ``auto`` is bf16 on a GPU that can and float32 on a CPU.
    """
    if wanted == "float32" or (wanted == "auto" and device.type == "cpu"):
        return "float32"
    return "bf16" if can_train_in_bf16(device) else "float32"


def as_input(images: Tensor, device: torch.device) -> Tensor:
    """Move images to the device in the memory layout that its convolutions are fastest in."""
    return images.to(device, memory_format=torch.channels_last, non_blocking=True)
