"""A record being written: whole lines only, reopened after a kill at the line a checkpoint speaks for."""

from __future__ import annotations

import contextlib
import os
from io import FileIO
from pathlib import Path
from types import TracebackType

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

from driftlaw.errors import DataError
from driftlaw.files import writable_folder
from driftlaw.records.jsonl import Line, dump_line, read_lines


class RecordWriter:
    """Appends lines to a JSONL file; each is whole on disk before the next one starts."""

    def __init__(self, path: Path, *, keep_lines: int = 0) -> None:
        """Open ``path`` and cut it to its first ``keep_lines`` lines (0 starts anew)."""
        self.path = path
        writable_folder(path.parent)
        position = _end_of_line(path, keep_lines) if keep_lines else 0
        # Unbuffered: a buffer would keep what a full disk refused, and try to write it again on closing.
        try:
            self._file = FileIO(path, "r+", opener=_open_or_make)
        except OSError as error:
            raise DataError(f"cannot write {path}: {error.strerror}; choose another place") from error
        self._lock()  # before anything of it is cut
        self._cut_back(position)

    def _lock(self) -> None:
        """Keep others from writing the same file for as long as it is open, where files can be locked."""
        if fcntl is None:
            return
        try:
            fcntl.flock(self._file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._file.close()
            raise DataError(
                f"{self.path} is being written by another process: wait for it, or choose another place"
            ) from error
        except OSError:  # a file system without locks
            return

    def write(self, line: Line) -> None:
        """Append one line; on a full disk the file is cut back to its last whole line."""
        start = self._file.tell()
        left = memoryview(dump_line(line))
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            self._cut_back(start)
            raise DataError(
                f"cannot write {self.path}: {error.strerror}; make room and give the same command again, it goes on"
            ) from error

    def _cut_back(self, position: int) -> None:
        self._file.truncate(position)
        self._file.seek(position)

    def sync(self) -> None:
        """Make sure that what was written is on the disk before a checkpoint refers to it."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file, and let others write it: a process that was forked meanwhile may hold it open for longer."""
        if fcntl is not None and not self._file.closed:
            with contextlib.suppress(OSError):
                fcntl.flock(self._file.fileno(), fcntl.LOCK_UN)
        self._file.close()

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _open_or_make(path: str, flags: int) -> int:
    """Open a file for reading and writing; unlike mode «w», nothing that is in it is lost."""
    return os.open(path, flags | os.O_CREAT, 0o666)


def _end_of_line(path: Path, lines: int) -> int:
    """Return where line ``lines`` of a file ends, counted in bytes."""
    try:
        with path.open("rb") as file:
            if all(file.readline().endswith(b"\n") for _ in range(lines)):
                return file.tell()
    except FileNotFoundError:
        pass
    raise DataError(
        f"{path} ends before line {lines}, but its checkpoint is later: delete the checkpoint and run again"
    )


def lines_on_disk(path: Path) -> list[Line]:
    """Return the whole lines already written, none where there is no file."""
    return read_lines(path) if path.exists() else []
