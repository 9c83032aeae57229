"""What takes long to make and is always the same: kept on disk under the hash of what it was made from."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from driftlaw.errors import DataError, warn_user
from driftlaw.files import atomic_path
from driftlaw.paths import data_dir

log = logging.getLogger(__name__)


def cache_dir(data: str | os.PathLike[str] | None = None) -> Path:
    """Return where things are kept: ``cache`` in the data folder, see ``driftlaw.paths.data_dir``."""
    return data_dir(data) / "cache"


def fingerprint(*parts: Any) -> str:
    """Return one sha256 of networks (all their parameters and buffers) and plain data, the same on any device.

    >>> fingerprint("prototypes", {"seed": 0}) == fingerprint("prototypes", {"seed": 0})
    True
    """
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, nn.Module):
            for name, value in sorted(part.state_dict().items()):
                array = value.detach().cpu().contiguous()
                digest.update(f"{name} {array.dtype} {tuple(array.shape)}\n".encode())
                digest.update(array.flatten().view(torch.uint8).numpy().tobytes())
        else:
            digest.update(f"{json.dumps(part, sort_keys=True)}\n".encode())
    return digest.hexdigest()


def cached(name: str, key: str, make: Callable[[], dict[str, Any]], *, folder: Path | None = None) -> dict[str, Any]:
    """Return what ``make`` returns, from disk where it was made before, and keep it there where it was not.

    What comes from disk lies on the CPU: copy it to where it is wanted. A damaged file is made anew. A folder that
    cannot be written to costs the keeping, not the result.

    Args:
        name: what it is, for the file's name.
        key: the ``fingerprint`` of all it is made from.
        make: returns plain data and tensors.
        folder: where to keep it; ``cache`` in the data folder where left out.
    """
    path = (folder if folder is not None else cache_dir()) / f"{name}-{key[:32]}.pt"
    kept = _read(path) if path.is_file() else None
    if kept is not None:
        return kept
    log.info("making %s, to be kept in %s", name, path)
    made = make()
    try:
        with atomic_path(path) as temporary:
            torch.save(made, temporary)
    except (DataError, OSError) as error:
        warn_user(f"{name} is not kept for the next time: {error}")
    return made


def _read(path: Path) -> dict[str, Any] | None:
    try:
        kept: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises half a dozen kinds for a file it cannot read
        reason = str(error).partition("\n")[0]
        warn_user(f"{path} is damaged ({reason}) and made anew")
        return None
    return kept
