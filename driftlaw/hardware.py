"""The CPU at hand: what it really runs, and memory that need not be asked of the system again and again."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import sys

# A convolution alone is not proof: some CPUs die only in a matrix product, where the library takes other instructions.
_BF16_TRIAL = """
import torch
convolution, head = torch.nn.Conv2d(16, 64, 3), torch.nn.Linear(64, 64)
images = torch.rand(32, 16, 16, 16).contiguous(memory_format=torch.channels_last)
with torch.autocast("cpu", dtype=torch.bfloat16):
    head(convolution(images).mean(dim=(2, 3))).square().mean().backward()
    torch.rand(256, 256) @ torch.rand(256, 256)
"""


@functools.cache
def runs_bf16() -> bool:
    """Tell whether bf16 autocast survives on this CPU; the first call takes some seconds."""
    return subprocess.run([sys.executable, "-c", _BF16_TRIAL], capture_output=True).returncode == 0


def keep_freed_memory() -> bool:
    """Let this process keep the memory of tensors that are gone; return whether the C library does.

    glibc hands blocks of some megabytes back to the system as soon as they are free, and the system clears every page
    of the next one: on a CPU that is a good part of a step. Afterwards blocks up to 32 MiB, glibc's most, stay.
    """
    give_back_above, map_above = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return False
    return bool(set_option(map_above, 32 * 2**20)) and bool(set_option(give_back_above, 2**31 - 1))
