"""JSON Lines files: canonical writing, reading up to the last complete line, plain or gzipped, and compression."""

import gzip
import hashlib
import json
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, cast

from driftlaw.errors import DataError
from driftlaw.files import atomic_path

Line = dict[str, Any]
GZIP_LEVEL = 9  # a record is written once and read often


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
    lines = []
    for number, text in enumerate(data.split(b"\n")[:-1], start=1):
        try:
            line = json.loads(text)
        except ValueError as error:
            if number == 1 and b'"format":"driftlaw' not in text:
                raise DataError(
                    f"{path} is not a record of driftlaw. Records are .jsonl or .jsonl.gz files."
                ) from error
            raise DataError(
                f"The record is damaged: {path}, line {number} is not JSON ({error}). Delete the file and run again."
            ) from error
        if not isinstance(line, dict):
            raise DataError(
                f"Not a driftlaw record: {path}, line {number} is a {type(line).__name__}, expected a JSON object."
            )
        lines.append(line)
    return lines


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


def compress_record(path: Path) -> Path:
    """Replace ``NAME.jsonl`` by ``NAME.jsonl.gz`` and return the new path; a compressed record is left unchanged."""
    if path.suffix == ".gz":
        return path
    target = path.with_name(path.name + ".gz")
    with (
        atomic_path(target) as temporary,
        path.open("rb") as plain,
        temporary.open("wb") as file,
        # No file name and no time in the gzip header: they would make equal records differ.
        gzip.GzipFile(filename="", mode="wb", compresslevel=GZIP_LEVEL, fileobj=file, mtime=0) as packed,
    ):
        shutil.copyfileobj(plain, packed)
    path.unlink()
    return target
