"""Paths: the user's data directory, and the files in the package."""

import os
import sys
from pathlib import Path

from driftlaw.errors import UsageError

PACKAGE = Path(__file__).resolve().parent
ASSETS = PACKAGE / "assets"
PRESETS = PACKAGE / "presets"


def data_dir(override: str | os.PathLike[str] | None = None) -> Path:
    """Return the directory for data and weights. It need not exist yet.

    Args:
        override: this directory, such as the value of ``--data-dir``. If None or empty, the environment variable
            ``DRIFTLAW_DATA``, and if that is not set, ``driftlaw`` in the user's cache directory.

    Raises:
        UsageError: ``override`` is not a path.
    """
    if not isinstance(override, str | os.PathLike | None):
        raise UsageError(f"The data directory is of type {type(override).__name__}. Expected a path.")
    chosen = override or os.environ.get("DRIFTLAW_DATA")
    return Path(chosen).expanduser() if chosen else _user_cache() / "driftlaw"


def _user_cache() -> Path:
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"])
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", str(Path.home() / "AppData" / "Local")))
    return Path.home() / ".cache"
