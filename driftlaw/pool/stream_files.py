"""Files of a pool: one per stream in a folder that one process uses at a time."""

from __future__ import annotations

import json
import string
from pathlib import Path
from urllib.parse import unquote

from filelock import FileLock, Timeout

from driftlaw.errors import DataError, UsageError
from driftlaw.files import atomic_path, writable_folder
from driftlaw.pool.packed_state import PackedState

PREFIX, SUFFIX = "stream-", ".pt"
SAFE = frozenset((string.ascii_lowercase + string.digits + "-_").encode())  # some file systems ignore case
MAX_NAME = 200  # characters of a file name without prefix and suffix


def encode_name(stream: object) -> str:
    """Return the name of a stream as part of a file name. Other characters than a-z, 0-9, - and _ become %XX.

    Raises:
        UsageError: it is not a string, or it is empty or too long.

    >>> encode_name("camera 7"), encode_name("../A")
    ('camera%207', '%2e%2e%2f%41')
    """
    if not isinstance(stream, str):
        raise UsageError(f"The name of a stream is of type {type(stream).__name__}. Pass a string: stream='camera-7'.")
    try:
        encoded = "".join(chr(byte) if byte in SAFE else f"%{byte:02x}" for byte in stream.encode())
    except UnicodeEncodeError:
        raise UsageError(f"The name of the stream, {stream!r}, is not valid Unicode. Pass another name.") from None
    if not 0 < len(encoded) <= MAX_NAME:
        raise UsageError(
            f"The name of the stream has {len(encoded)} characters, where other characters than a-z, 0-9, - and _ "
            f"count as three or more. Expected 1 to {MAX_NAME}."
        )
    return encoded


class StreamFiles:
    """The files of a pool.

    Args:
        folder: the folder; it is created if needed.
        owner: hash of what the states belong to.

    Raises:
        DataError: the folder is not writable, is in use by another pool, or contains states of another one.

    Attributes:
        sizes: bytes of the file of every stream that has one.
    """

    def __init__(self, folder: Path, owner: str) -> None:
        self.folder, self.owner = writable_folder(folder), owner
        self._lock = FileLock(folder / "pool.lock", timeout=0)
        try:
            self._lock.acquire()
        except Timeout as error:
            raise DataError(f"{folder} is in use by another pool. Close that one, or pass another folder.") from error
        except OSError:  # a file system without locks
            pass
        marker = folder / "pool.json"
        if not marker.exists():
            with atomic_path(marker) as temporary:
                temporary.write_text(json.dumps({"owner": owner}), encoding="utf-8")
        elif marker.read_text(encoding="utf-8", errors="replace") != json.dumps({"owner": owner}):
            self.close()
            raise DataError(f"{folder} contains states of another model, method, setting or seed. Pass another folder.")
        self.sizes: dict[str, int] = {}
        for path in folder.glob(f".{PREFIX}*.part{SUFFIX}"):  # of processes that were killed while they wrote
            path.unlink(missing_ok=True)
        for path in sorted(folder.glob(f"{PREFIX}*{SUFFIX}"), key=lambda path: path.stat().st_mtime):
            try:
                stream = unquote(path.name[len(PREFIX) : -len(SUFFIX)], errors="strict")
                is_own = self.path(stream) == path
            except (UnicodeDecodeError, UsageError):
                continue
            if is_own:
                self.sizes[stream] = path.stat().st_size

    def path(self, stream: str) -> Path:
        """Return the file of a stream."""
        return self.folder / f"{PREFIX}{encode_name(stream)}{SUFFIX}"

    def save(self, stream: str, state: PackedState) -> None:
        """Write the state of a stream; an earlier file is kept until the new one is complete."""
        path = self.path(stream)
        state.save(path, stream, self.owner)
        self.sizes[stream] = path.stat().st_size

    def load(self, stream: str) -> PackedState:
        """Read the state of a stream.

        Raises:
            DataError: the file is missing or damaged, or belongs to another model or method.
        """
        try:
            return PackedState.load(self.path(stream), stream, self.owner)
        except DataError as error:
            raise DataError(
                f"The state of stream '{stream}' cannot be read: {error} Other streams are not affected. Restore the "
                f"file, or call pool.reset('{stream}') to start from the source model."
            ) from error

    def delete(self, stream: str) -> None:
        """Delete the file of a stream, if it has one."""
        try:
            self.path(stream).unlink(missing_ok=True)
        except OSError as error:
            raise DataError(f"Cannot delete the state of stream '{stream}': {error.strerror}.") from error
        self.sizes.pop(stream, None)

    def close(self) -> None:
        """Let other pools use the folder."""
        self._lock.release()
