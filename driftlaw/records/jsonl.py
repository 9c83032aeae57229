"""JSON Lines files: canonical writing, and reading up to the last complete line, plain or gzipped."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, cast

from driftlaw.errors import DataError

Line = dict[str, Any]


def dump_line(line: Line) -> bytes:
    r"""Return the canonical bytes of one line: keys in the given order, no spaces, UTF-8, one newline.

    >>> dump_line({"batch": 0, "wrong": 3})
    b'{"batch":0,"wrong":3}\n'
    """
    return (json.dumps(line, separators=(",", ":"), ensure_ascii=False, allow_nan=False) + "\n").encode()


def content_hash(value: Any) -> str:
    """Return the sha256 of JSON data. The order of keys does not matter."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def read_lines(path: Path) -> list[Line]:
    """Return the complete lines of a file. An incomplete last line (interrupted write) is ignored.

    Raises:
        DataError: the file does not exist, cannot be read, or a complete line is not a JSON object.
    """
    data = _read_bytes(path, lambda file: file.read())
    complete, newline, _ = data.rpartition(b"\n")
    if not newline:
        return []
    return [_parse(line, path, number) for number, line in enumerate(complete.split(b"\n"), start=1)]


def first_line(path: Path) -> bytes:
    """Return the bytes of a file's first line without reading the rest."""
    return _read_bytes(path, lambda file: file.readline())


def _read_bytes(path: Path, read: Callable[[BinaryIO], bytes]) -> bytes:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return read(cast(BinaryIO, file))
    except FileNotFoundError as error:
        raise DataError(f"No record at {path}. Pass a .jsonl file, or a folder that contains some.") from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"Cannot read the record {path}: {error}.") from error


def _parse(line: bytes, path: Path, number: int) -> Line:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise DataError(
            f"The record is damaged: {path}, line {number} is not JSON ({error}). Delete the file and run again."
        ) from error
    if not isinstance(value, dict):
        raise DataError(
            f"Not a driftlaw record: {path}, line {number} is a {type(value).__name__}, expected a JSON object."
        )
    return value
