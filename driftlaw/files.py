"""Files: atomic writes, errors about full disks, and checksums."""

import contextlib
import errno
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from driftlaw.errors import DataError


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Context manager that yields a temporary path, which replaces ``path`` if the block succeeds.

    The temporary file is in the same directory, which is created if needed, and has the same suffix, because some
    writers choose the format by it. If the block fails, it is deleted and ``path`` is not changed.

    Raises:
        DataError: the disk is full, or the directory is not writable.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_path(Path(folder) / "a.txt") as temporary:
    ...         _ = temporary.write_text("complete")
    ...     (Path(folder) / "a.txt").read_text()
    'complete'
    """
    target = Path(path)
    with disk_full_error(writable_folder(target.parent)):
        temporary = _create_temporary(target)
        try:
            yield temporary
            with open(temporary, "rb+") as file:
                os.fsync(file.fileno())
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)


def writable_folder(folder: Path) -> Path:
    """Create ``folder`` if needed and return it.

    Raises:
        DataError: it cannot be created, or is not writable.
    """
    with disk_full_error(folder):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (PermissionError, FileExistsError, NotADirectoryError) as error:
            raise DataError(f"Cannot create directory {folder}: {error.strerror} ({error.filename}).") from error
        if not os.access(folder, os.W_OK | os.X_OK):
            raise DataError(f"Directory {folder} is not writable. Choose another one or change its permissions.")
    return folder


@contextlib.contextmanager
def disk_full_error(folder: Path) -> Iterator[None]:
    """Context manager that replaces the operating system's error about a full disk by one that names the folder."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise DataError(
            f"No space left on the disk of {folder}. Free some space or choose another directory, then run the "
            "command again."
        ) from error


def sha256_of(path: str | os.PathLike[str]) -> str:
    """Return the sha256 checksum of a file in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _create_temporary(target: Path) -> Path:
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.stem[:80]}.", suffix=f".part{target.suffix}")
    os.close(handle)
    # mkstemp makes files that only their owner can read; give this one the permissions of any other new file.
    mask = os.umask(0)
    os.umask(mask)
    os.chmod(name, 0o666 & ~mask)
    return Path(name)
