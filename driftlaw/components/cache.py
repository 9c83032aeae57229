"""Cache on disk for expensive results, stored under a hash of their inputs."""

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
from driftlaw.models.normalize import INPUT_BUFFERS
from driftlaw.paths import data_dir
from driftlaw.torch_files import read_torch_file

log = logging.getLogger(__name__)


def cache_dir(data: str | os.PathLike[str] | None = None) -> Path:
    """Return the cache directory: ``cache`` in the data directory, see `driftlaw.paths.data_dir`."""
    return data_dir(data) / "cache"


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


def cached(name: str, key: str, compute: Callable[[], dict[str, Any]], *, folder: Path | None = None) -> dict[str, Any]:
    """Return the cached result of ``compute``, or compute and store it.

    Tensors from the cache are on the CPU. A damaged file is computed again. If the folder is not writable, the result
    is returned but not stored.

    Args:
        name: description of the result, used in the file name.
        key: `fingerprint` of everything the result depends on.
        compute: returns JSON data and tensors.
        folder: directory of the cache. If None, `cache_dir`.
    """
    path = (folder or cache_dir()) / f"{name}-{key[:32]}.pt"
    if path.is_file():
        try:
            stored: dict[str, Any] = read_torch_file(path)
            return stored
        except DataError as error:
            warn_user(f"{error} The content of this cache file is computed again.")
    log.info("computing %s, to be stored in %s", name, path)
    result = compute()
    try:
        with atomic_path(path) as temporary:
            torch.save(result, temporary)
    except (DataError, OSError) as error:
        warn_user(f"The result '{name}' was not stored in the cache: {error}. It will be computed again next time.")
    return result
