"""Files: atomic writes, errors about full disks, limits of what is read, checksums, and import of Python files."""

import contextlib
import errno
import hashlib
import importlib.util
import os
import re
import sys
import tempfile
import traceback
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from driftlaw.errors import DataError, UsageError

MAX_CLASSES = 1_000_000
"""Files that name more classes, or contain higher labels, are refused."""
_FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_IMPORTED = "driftlaw_imported_"  # start of the module names of imported files


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
    """Context manager that replaces an error about a full disk, or one that it caused, by one that names the folder."""
    try:
        yield
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None and getattr(cause, "errno", None) not in _FULL_DISK:
            cause = cause.__context__  # torch raises a RuntimeError while it handles the OSError
        if cause is None and os.strerror(errno.ENOSPC) not in str(error):  # safetensors only states the text
            raise
        raise DataError(
            f"No space left on the disk of {folder}. Files that were there are unchanged. Free some space or choose "
            "another directory, then run the command again."
        ) from error


def check_regular_file(path: str | os.PathLike[str]) -> None:
    """Raise DataError if ``path`` is a pipe, a socket or a device: reading it may never end."""
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise DataError(f"{path} is not a regular file. Remove it, or pass another path.")


def sha256_of(path: str | os.PathLike[str]) -> str:
    """Return the sha256 checksum of a file in hexadecimal."""
    check_regular_file(path)
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def import_python_file(path: Path) -> ModuleType:
    """Import a user's Python file. It may import its neighbours, as when Python runs it.

    Raises:
        UsageError: the file does not exist, its name does not end in .py, or importing it fails.
    """
    if not path.is_file():
        raise UsageError(f"{path} is not a file. Expected a Python file.")
    # A unique name: a file called torch.py must not shadow torch, nor one of two files of the same name the other.
    name = f"{_IMPORTED}{path.stem}_{zlib.crc32(os.fsencode(path.resolve())):08x}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file. The file name must end in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # pydantic resolves annotations through sys.modules
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # user code may raise anything
        del sys.modules[name]
        raise UsageError(f"{path} cannot be imported: {describe_error(error, path)}") from error
    finally:
        sys.path.remove(folder)
    return module


def imported_file(module_name: str) -> dict[str, str] | None:
    """Return name and sha256 of the file of a module that ``import_python_file`` imported; None for other modules."""
    if not module_name.startswith(_IMPORTED):
        return None
    path = Path(str(sys.modules[module_name].__file__))
    return {"name": path.name, "sha256": sha256_of(path)}


def describe_error(error: Exception, path: Path) -> str:
    """Return the message of an error that a user's file caused, with the line number in that file."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    line = next((frame.lineno for frame in reversed(frames) if Path(frame.filename) == path), None)
    return f"{f'line {line}: ' if line else ''}{type(error).__name__}: {error}"


def delete_leftovers(target: Path) -> None:
    """Delete the temporary files of ``atomic_path(target)`` in processes that were killed.

    Only files whose whole name is that of such a file are deleted. Call it if no other process writes ``target``.
    """
    pattern = re.compile(rf"{re.escape(_temporary_prefix(target))}[a-z0-9_]{{8}}\.part{re.escape(target.suffix)}")
    for name in os.listdir(target.parent):
        if pattern.fullmatch(name):
            (target.parent / name).unlink(missing_ok=True)


def _temporary_prefix(target: Path) -> str:
    stem = target.stem
    return f".{stem}." if len(stem) <= 80 else f".{stem[:72]}{zlib.crc32(os.fsencode(stem)):08x}."


def _create_temporary(target: Path) -> Path:
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=_temporary_prefix(target), suffix=f".part{target.suffix}")
    os.close(handle)
    # mkstemp makes files that only their owner can read; give this one the permissions of any other new file.
    mask = os.umask(0)
    os.umask(mask)
    os.chmod(name, 0o666 & ~mask)
    return Path(name)
