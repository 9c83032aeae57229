"""Writing of records: complete lines only, one writer per file, and truncation to a checkpoint on resume."""

import contextlib
import hashlib
import os
from io import FileIO
from pathlib import Path

from filelock import FileLock, Timeout

from driftlaw.errors import DataError
from driftlaw.files import disk_full_error, writable_folder
from driftlaw.records.jsonl import Line, dump_line


class RecordWriter(contextlib.AbstractContextManager["RecordWriter"]):
    """Appends lines to a JSONL file. Each line is completely on disk before the next one starts.

    The file is locked while it is open, through ``NAME.lock`` beside it.

    Attributes:
        path: the file.
        digest: sha256 hash object of the bytes written so far, including the kept lines.
    """

    def __init__(self, path: Path, *, keep_lines: int = 0) -> None:
        """Open ``path`` and truncate it to its first ``keep_lines`` lines (0: start a new file)."""
        self.path = path
        writable_folder(path.parent)
        position, self.digest = hash_lines(path, keep_lines) if keep_lines else (0, hashlib.sha256())
        # Unbuffered: a buffer would keep what a full disk refused, and write it again on closing.
        # Opened without truncation: another process may be writing the file.
        try:
            self._file = FileIO(path, "r+", opener=lambda name, flags: os.open(name, flags | os.O_CREAT, 0o666))
        except OSError as error:
            raise DataError(f"Cannot write {path}: {error.strerror}. Choose another output path.") from error
        self._lock = FileLock(path.with_name(path.name + ".lock"), timeout=0)
        try:
            self._lock.acquire()
        except Timeout as error:
            self._file.close()
            raise DataError(
                f"{path} is being written by another process. Wait for it to finish, or choose another output path."
            ) from error
        except OSError:  # a file system without locks
            pass
        self._truncate(position)

    def write(self, line: Line) -> None:
        """Append one line. If the disk is full, the file is truncated to its last complete line.

        Raises:
            DataError: the disk is full, or the file was deleted or replaced since it was opened.
        """
        self._check_path()
        start = self._file.tell()
        text = dump_line(line)
        remaining = memoryview(text)
        try:
            while remaining:
                remaining = remaining[self._file.write(remaining) :]
        except OSError as error:
            with contextlib.suppress(OSError):  # readers ignore an incomplete last line
                self._truncate(start)
            raise DataError(
                f"Cannot write {self.path}: {error.strerror}. Free some disk space and run the same command to resume."
            ) from error
        self.digest.update(text)

    def _check_path(self) -> None:
        with contextlib.suppress(OSError):
            if os.path.samestat(os.stat(self.path), os.fstat(self._file.fileno())):
                return
        raise DataError(
            f"{self.path} was deleted or replaced while the run was writing it. Its lines are lost. Run the command "
            "again, and keep the output folder until it ends."
        )

    def _truncate(self, position: int) -> None:
        self._file.truncate(position)
        self._file.seek(position)

    def sync(self) -> None:
        """Flush the file to disk, so that a checkpoint can refer to its lines. Raise DataError as ``write`` does."""
        self._check_path()
        with disk_full_error(self.path.parent):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file and release its lock."""
        self._file.close()
        if self._lock.is_locked:
            with contextlib.suppress(OSError):
                os.unlink(self._lock.lock_file)  # while it is held: no other process can have locked it
            self._lock.release()

    def __exit__(self, *exception: object) -> None:
        self.close()


def hash_lines(path: Path, lines: int) -> tuple[int, "hashlib._Hash"]:
    """Return the position in bytes after line ``lines`` of a file, and a sha256 hash object of the bytes before it."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            for _ in range(lines):
                if not (text := file.readline()).endswith(b"\n"):
                    break
                digest.update(text)
            else:
                return file.tell(), digest
    except FileNotFoundError:
        pass
    raise DataError(
        f"{path} ends before line {lines}, but its checkpoint is later. Delete the checkpoint and run again."
    )
