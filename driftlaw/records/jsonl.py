"""JSON Lines files: canonical writing, reading up to the last complete line, plain or gzipped, and compression."""

import gzip
import hashlib
import json
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from driftlaw.errors import DataError, UsageError
from driftlaw.files import atomic_path, check_regular_file, delete_leftovers

Line = dict[str, Any]
GZIP_LEVEL = 9  # a record is written once and read often
MAX_LINE_BYTES = 1 << 24
MAX_BYTES = 1 << 30
"""Size limit of a compressed record after decompression: a small gzip file can expand to any size."""
SHA256_KEY = "record_sha256"
"""Key in ``timing`` of the closing line: sha256 of all bytes of the record, without the key and its value."""


def dump_line(line: Line) -> bytes:
    r"""Return the canonical bytes of one line: keys in the given order, no spaces, UTF-8, one newline.

    >>> dump_line({"batch": 0, "wrong": 3})
    b'{"batch":0,"wrong":3}\n'
    """
    text = json.dumps(line, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode(errors="backslashreplace")  # UTF-8 has no surrogates; JSON has escapes


def content_hash(value: Any) -> str:
    """Return the sha256 of JSON data. The order of keys does not matter.

    Raises:
        UsageError: a value is not JSON data, such as infinity in a preset.
    """
    try:
        canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return hashlib.sha256(canonical.encode()).hexdigest()
    except (TypeError, ValueError) as error:
        raise UsageError(f"Settings must be finite numbers, text, lists or tables, but {error}.") from error


def read_lines(path: Path) -> list[Line]:
    """Return the complete lines of a file. An incomplete last line (interrupted write) is ignored.

    Raises:
        DataError: the file does not exist, cannot be read, is over the limits ``MAX_LINE_BYTES`` and ``MAX_BYTES``, or
            a complete line is not a JSON object.
    """
    return [line for _, line in iter_lines(path)]


def iter_lines(path: Path) -> Iterator[tuple[bytes, Line]]:
    """Yield the bytes and the content of each complete line of a file; see ``read_lines``."""
    number = size = 0
    with _open(path) as file:
        while text := file.readline(MAX_LINE_BYTES):
            number, size = number + 1, size + len(text)
            if not text.endswith(b"\n") and len(text) < MAX_LINE_BYTES:
                return
            if not text.endswith(b"\n") or (path.suffix == ".gz" and size > MAX_BYTES):
                raise DataError(
                    f"The record {path} is too large at line {number}. A line may have {MAX_LINE_BYTES:,} bytes, a "
                    f"compressed record {MAX_BYTES:,} bytes after decompression. If you trust it, decompress it first."
                )
            try:
                line = json.loads(text)
            except (ValueError, RecursionError) as error:
                if number == 1 and b'"format":"driftlaw' not in text:
                    message = f"{path} is not a record of driftlaw. Records are .jsonl or .jsonl.gz files."
                    raise DataError(message) from error
                where = f"{path}, line {number} is not JSON ({error})"
                raise DataError(f"The record is damaged: {where}. Delete the file and run again.") from error
            if not isinstance(line, dict):
                kind = type(line).__name__
                raise DataError(f"Not a driftlaw record: {path}, line {number} is a {kind}, expected a JSON object.")
            yield text, line


def first_line(path: Path) -> bytes:
    """Return the bytes of a file's first line without reading the rest."""
    with _open(path) as file:
        return file.readline(MAX_LINE_BYTES)


@contextmanager
def _open(path: Path) -> Iterator[BinaryIO]:
    check_regular_file(path)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            yield cast(BinaryIO, file)
    except FileNotFoundError as error:
        raise DataError(f"No record at {path}. Pass a .jsonl file, or a folder that contains some.") from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"Cannot read the record {path}: {error}.") from error


def compress_record(path: Path) -> Path:
    """Replace ``NAME.jsonl`` by ``NAME.jsonl.gz`` and return the new path; a compressed record is left unchanged."""
    if path.suffix == ".gz":
        return path
    target = path.with_name(path.name + ".gz")
    delete_leftovers(target)
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
