"""Writing of records: complete lines only, one writer per file, and truncation to a checkpoint on resume."""

import contextlib
import os
from io import FileIO
from pathlib import Path

from filelock import FileLock, Timeout

from driftlaw.errors import DataError
from driftlaw.files import writable_folder
from driftlaw.records.jsonl import Line, dump_line


class RecordWriter(contextlib.AbstractContextManager["RecordWriter"]):
    """Appends lines to a JSONL file. Each line is completely on disk before the next one starts.

    The file is locked while it is open, through ``NAME.lock`` beside it.
    """

    def __init__(self, path: Path, *, keep_lines: int = 0) -> None:
        """Open ``path`` and truncate it to its first ``keep_lines`` lines (0: start a new file)."""
        self.path = path
        writable_folder(path.parent)
        position = _end_of_line(path, keep_lines) if keep_lines else 0
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
        """Append one line. If the disk is full, the file is truncated to its last complete line."""
        start = self._file.tell()
        remaining = memoryview(dump_line(line))
        try:
            while remaining:
                remaining = remaining[self._file.write(remaining) :]
        except OSError as error:
            self._truncate(start)
            raise DataError(
                f"Cannot write {self.path}: {error.strerror}. Free some disk space and run the same command to resume."
            ) from error

    def _truncate(self, position: int) -> None:
        self._file.truncate(position)
        self._file.seek(position)

    def sync(self) -> None:
        """Flush the file to disk, so that a checkpoint can refer to its lines."""
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


def _end_of_line(path: Path, lines: int) -> int:
    """Return the position in bytes after line ``lines`` of a file."""
    try:
        with path.open("rb") as file:
            if all(file.readline().endswith(b"\n") for _ in range(lines)):
                return file.tell()
    except FileNotFoundError:
        pass
    raise DataError(
        f"{path} ends before line {lines}, but its checkpoint is later. Delete the checkpoint and run again."
    )
