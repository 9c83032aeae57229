"""What the CPU at hand really runs, found out in a child process: some announce instructions and die of them."""

from __future__ import annotations

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
