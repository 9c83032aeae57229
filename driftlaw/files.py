"""How files are written and checked: whole or not at all, and by their sha256."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from driftlaw.errors import DataError

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside ``path`` that becomes ``path`` when the block ends well.

    The temporary keeps the suffix of ``path``, so that writers which look at it (Pillow, numpy) do the same thing. On
    any failure it is removed and an older ``path`` stays as it was. The parent folder is made.

    Raises:
        DataError: the disk is full, or the folder cannot be written into.
    """
    target = Path(path)
    with full_disk_is_told(writable_folder(target.parent)):
        temporary = _new_sibling(target)
        try:
            yield temporary
            _flush_to_disk(temporary)
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)


def writable_folder(folder: Path) -> Path:
    """Return ``folder``, made if need be, or raise a DataError where nothing can be written into it."""
    with full_disk_is_told(folder):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (PermissionError, FileExistsError, NotADirectoryError) as error:
            raise DataError(f"the folder {folder} cannot be made: {error.strerror} ({error.filename})") from error
        if not os.access(folder, os.W_OK | os.X_OK):
            raise DataError(f"the folder {folder} cannot be written into; choose another one or change its rights")
    return folder


@contextlib.contextmanager
def full_disk_is_told(folder: Path) -> Iterator[None]:
    """Turn the operating system's «no space left» inside the block into a message that names the folder."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        raise DataError(
            f"no space left on the disk of {folder}: free some, or choose another folder, and run the command again"
        ) from error


def sha256_of(path: str | os.PathLike[str]) -> str:
    """Return the sha256 of a file's bytes in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _new_sibling(target: Path) -> Path:
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.stem[:80]}.", suffix=f".part{target.suffix}")
    os.close(handle)
    # mkstemp's files are for their owner alone; the finished file should be as readable as any other new one.
    mask = os.umask(0)
    os.umask(mask)
    os.chmod(name, 0o666 & ~mask)
    return Path(name)


def _flush_to_disk(path: Path) -> None:
    with open(path, "rb+") as file:
        os.fsync(file.fileno())
