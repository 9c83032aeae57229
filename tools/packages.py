"""Download of npm and PyPI packages, for machines that reach a package mirror and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from driftlaw.errors import DataError

TIMEOUT_SECONDS = 1800.0


def npm_pack(package: str, version: str, folder: Path, *, client: str = "npm") -> Path:
    """Download the tarball of an npm package into ``folder`` with ``npm pack`` and return its path."""
    options = ["--ignore-scripts", "--loglevel=error"]
    return _download([client, "pack", f"{package}@{version}"], options, folder, ".tgz")


def pip_download(package: str, version: str, folder: Path, *, client: str = sys.executable) -> Path:
    """Download the wheel of a PyPI package into ``folder`` with ``pip download`` and return its path."""
    options = ["--no-deps", "--only-binary=:all:", "--disable-pip-version-check"]
    return _download([client, "-m", "pip", "download", f"{package}=={version}"], options, folder, ".whl")


def _download(command: Sequence[str], options: Sequence[str], folder: Path, suffix: str) -> Path:
    """Run a command in ``folder`` and return the file with this suffix that it writes there."""
    program = shutil.which(command[0])
    if program is None:
        raise DataError(f"The program '{command[0]}' is not on the PATH. Install it, or download the package by hand.")
    shown = " ".join([Path(program).name, *command[1:]])
    try:
        result = subprocess.run(
            [program, *command[1:], *options],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DataError(f"`{shown}` did not finish: {error}.") from error
    if result.returncode:
        lines = [line.strip() for line in result.stderr.splitlines() if line.strip() and "complete log" not in line]
        raise DataError(f"`{shown}` failed: {' '.join(lines[-2:]) or 'no message'}.")
    files = sorted(folder.glob(f"*{suffix}"))
    if not files:
        raise DataError(f"`{shown}` succeeded but wrote no {suffix} file.")
    return files[0]
