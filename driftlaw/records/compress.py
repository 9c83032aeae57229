"""Records made small: gzip without a timestamp, so that the same record gives the same bytes."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

from driftlaw.files import atomic_path

LEVEL = 9  # a record is written once and kept for good


def compress_record(path: Path) -> Path:
    """Put ``NAME.jsonl.gz`` in the place of ``NAME.jsonl`` and return it; one that is compressed stays as it is."""
    if path.suffix == ".gz":
        return path
    target = path.with_name(path.name + ".gz")
    with (
        atomic_path(target) as temporary,
        path.open("rb") as plain,
        temporary.open("wb") as file,
        # An empty name and time: neither belongs to what happened.
        gzip.GzipFile(filename="", mode="wb", compresslevel=LEVEL, fileobj=file, mtime=0) as packed,
    ):
        shutil.copyfileobj(plain, packed)
    path.unlink()
    return target
