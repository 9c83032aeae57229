"""Compression of run records: gzip without a timestamp, so that equal records give equal bytes."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

from driftlaw.files import atomic_path

LEVEL = 9  # a record is written once and read often


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
        gzip.GzipFile(filename="", mode="wb", compresslevel=LEVEL, fileobj=file, mtime=0) as packed,
    ):
        shutil.copyfileobj(plain, packed)
    path.unlink()
    return target
