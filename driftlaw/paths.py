"""Where things lie: the data folder of this user and the files that ship with the package."""

from __future__ import annotations

import os
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
ASSETS = PACKAGE / "assets"
PRESETS = PACKAGE / "presets"


def data_dir(override: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder that data and weights are looked for and cached in; it need not exist yet.

    In this order: ``override`` (the command line's ``--data-dir``), the environment's ``DRIFTLAW_DATA``, the user's
    cache folder.
    """
    if override:
        return Path(override).expanduser()
    if os.environ.get("DRIFTLAW_DATA"):
        return Path(os.environ["DRIFTLAW_DATA"]).expanduser()
    return _user_cache() / "driftlaw"


def _user_cache() -> Path:
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"])
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", str(Path.home() / "AppData" / "Local")))
    return Path.home() / ".cache"
