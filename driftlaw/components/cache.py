"""Fingerprints of models and settings: keys of results that are cached on disk."""

import hashlib
import json
from typing import Any

import torch
from torch import nn

from driftlaw.models.normalize import INPUT_BUFFERS


def fingerprint(*parts: Any) -> str:
    """Return one sha256 of models (all parameters and buffers) and JSON data, independent of the device.

    >>> fingerprint("prototypes", {"seed": 0}) == fingerprint("prototypes", {"seed": 0})
    True
    """
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, nn.Module):
            unsaved = {name: getattr(part, name) for name in INPUT_BUFFERS if hasattr(part, name)}
            for name, value in sorted((part.state_dict() | unsaved).items()):
                array = value.detach().cpu().contiguous()
                digest.update(f"{name} {array.dtype} {tuple(array.shape)}\n".encode())
                digest.update(array.flatten().view(torch.uint8).numpy().tobytes())
        else:
            digest.update(f"{json.dumps(part, sort_keys=True)}\n".encode())
    return digest.hexdigest()
