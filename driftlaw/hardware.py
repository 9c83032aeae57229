"""Hardware of this machine: device choice, bf16 support, malloc options, and the environment stored in records."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftlaw.errors import UsageError, suggest

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# A convolution alone is not enough: some CPUs crash only in a matrix product, which uses other instructions.
_BF16_TRIAL = """
import torch
convolution, head = torch.nn.Conv2d(16, 64, 3), torch.nn.Linear(64, 64)
images = torch.rand(32, 16, 16, 16).contiguous(memory_format=torch.channels_last)
with torch.autocast("cpu", dtype=torch.bfloat16):
    head(convolution(images).mean(dim=(2, 3))).square().mean().backward()
    torch.rand(256, 256) @ torch.rand(256, 256)
"""


def pick_device(name: str) -> torch.device:
    """Return the torch device called ``name``; ``auto`` is a GPU if there is one, else the CPU."""
    import torch

    if isinstance(name, str) and name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, TypeError, ValueError) as error:
        usable = "auto, cpu or cuda" if torch.cuda.is_available() else "auto or cpu"
        reason = str(error).splitlines()[0]
        if isinstance(name, str) and reason.startswith("Expected one of"):  # followed by all device types of torch
            hint = suggest("cuda" if "gpu" in str(name).lower() else str(name), ["cpu", "cuda", "mps"])
            raise UsageError(f"torch has no device '{name}'. {hint}This machine can use {usable}.") from error
        raise UsageError(f"The device '{name}' cannot be used on this machine ({reason}). Use {usable}.") from error
    return device


def to_device(images: Tensor, device: torch.device) -> Tensor:
    """Return images on ``device`` in channels-last memory format, in which convolutions are fastest."""
    import torch

    return images.to(device, memory_format=torch.channels_last, non_blocking=True)


@functools.cache
def runs_bf16() -> bool:
    """Return True if bf16 autocast works on this CPU.

    It is tried in a child process, because some CPUs announce bf16 and then crash. The first call takes some seconds.
    """
    return subprocess.run([sys.executable, "-c", _BF16_TRIAL], capture_output=True).returncode == 0


def supports_bf16(device: torch.device) -> bool:
    """Return True if bf16 autocast works on ``device``."""
    import torch

    return torch.cuda.is_bf16_supported() if device.type == "cuda" else runs_bf16()


def keep_freed_memory() -> bool:
    """Let this process reuse freed memory instead of returning it to the system, and return True if glibc agrees.

    By default glibc returns freed blocks of some megabytes to the system, which then clears every page of the next
    block: a considerable part of a step on a CPU. Afterwards blocks of up to 32 MiB, glibc's maximum, are kept.
    """
    trim_threshold, mmap_threshold = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return False
    return bool(mallopt(mmap_threshold, 32 * 2**20)) and bool(mallopt(trim_threshold, 2**31 - 1))


def load_average() -> float | None:
    """Return the number of processes that are running or ready to run, averaged over one minute; None on Windows."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def environment(device: torch.device) -> dict[str, Any]:
    """Return the versions, commit and device that a record's header stores, as plain data."""
    import numpy
    import torch

    from driftlaw import __version__

    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else (models or [platform.machine()])[0]
    return {
        "driftlaw": __version__,
        "versions": {"python": platform.python_version(), "torch": str(torch.__version__), "numpy": numpy.__version__},
        "commit": os.environ.get("DRIFTLAW_COMMIT") or checkout_commit(Path(__file__).parent),
        "device": {"type": device.type, "name": name, "threads": torch.get_num_threads()},
    }


@functools.cache
def checkout_commit(package: Path) -> str | None:
    """Return the commit of the git checkout whose top-level folder contains ``package``, with '+' if files differ.

    The result is None without git, and for a package that is installed somewhere inside another project's checkout.
    The environment variable DRIFTLAW_COMMIT overrides it in records.
    """

    def git(arguments: str) -> str:
        command = ["git", "-C", str(package), *arguments.split()]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        if Path(git("rev-parse --show-toplevel")) != package.parent:
            return None
        return git("rev-parse --short HEAD") + ("+" if git("status --porcelain -uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return None
