"""Precision in which a device trains a model."""

from __future__ import annotations

from typing import Literal

import torch

from driftlaw.hardware import supports_bf16


def usable_precision(setting: Literal["auto", "bf16", "float32"], device: torch.device) -> Literal["bf16", "float32"]:
    """Return the precision to train in: ``setting``, or float32 if the device does not support bf16.

    ``auto`` is bf16 on a GPU that supports it, and float32 on a CPU.
    """
    if setting == "float32" or (setting == "auto" and device.type == "cpu"):
        return "float32"
    return "bf16" if supports_bf16(device) else "float32"
