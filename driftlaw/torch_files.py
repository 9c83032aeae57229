"""Files that torch.save wrote: reading them without running code, and a cache of results on disk."""

import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from driftlaw.errors import DataError, warn_user
from driftlaw.files import atomic_path, check_regular_file
from driftlaw.paths import data_dir

log = logging.getLogger(__name__)

EXPECTED = "Expected tensors by name, written by torch.save(model.state_dict(), path)."


def read_torch_file(
    path: str | os.PathLike[str], device: torch.device | str = "cpu", *, expected: str = EXPECTED
) -> Any:
    """Return the contents of a file of tensors and plain data. Code in the file is not run.

    torch's own errors are replaced, because they advise to load the file in a way that runs its code.

    Args:
        path: the file.
        device: where its tensors are put.
        expected: sentence of the error that says what the file should be.

    Raises:
        DataError: the file is missing or damaged, or contains other Python objects.
    """
    check_regular_file(path)
    try:
        return torch.load(path, map_location=device, weights_only=True)
    except (MemoryError, torch.cuda.OutOfMemoryError):
        raise
    except Exception as error:  # torch raises many types for files that it cannot read
        text = str(error)
        if found := re.search(r"GLOBAL (\S+)", text):
            reason = f"contains Python objects ({found[1]}), which can run code when they are loaded. {expected}"
        elif "TorchScript" in text:
            reason = f"is a TorchScript archive, which contains code. {expected}"
        elif isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError):
            reason = f"cannot be read as a torch file: {error.strerror}."
        else:
            reason = f"is damaged or was not written by torch.save. {expected}"
        raise DataError(f"{path} {reason}") from None


def cache_dir(data: str | os.PathLike[str] | None = None) -> Path:
    """Return the cache directory: ``cache`` in the data directory, see `driftlaw.paths.data_dir`."""
    return data_dir(data) / "cache"


def cached(name: str, key: str, compute: Callable[[], dict[str, Any]], *, folder: Path | None = None) -> dict[str, Any]:
    """Return the cached result of ``compute``, or compute and store it.

    Tensors from the cache are on the CPU. A damaged file is computed again. If the folder is not writable, the result
    is returned but not stored.

    Args:
        name: description of the result, used in the file name.
        key: hash of everything the result depends on, such as `driftlaw.components.cache.fingerprint`.
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
