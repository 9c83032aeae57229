"""Copies records without the frames that ``--metrics frames`` stores, for datasets whose images are not published.

    python -m tools.remove_frames runs results/camvid-half

Everything else stays as it is. The closing line has the hash of the new lines as ``record_sha256`` and that of the
original record as ``record_sha256_with_frames``. The copies are compressed. If the run of a record is not finished,
nothing is written.
"""

from __future__ import annotations

import gzip
import hashlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from driftlaw.errors import DataError, DriftlawError, UsageError
from driftlaw.files import atomic_path
from driftlaw.records import find_records, read_record
from driftlaw.records.jsonl import GZIP_LEVEL, SHA256_KEY, dump_line


def remove_frames(path: Path) -> bytes:
    """Return the lines of a finished record without frames.

    Raises:
        DataError: The record is damaged, or was changed after the run, or the run is not finished.
    """
    record = read_record(path)
    if record.closing is None:
        raise DataError(f"{path} is the record of a run that is not finished. Finish the run first.")
    batches = [{name: value for name, value in line.items() if name != "frame"} for line in record.batches]
    timing = dict(record.closing["timing"])
    timing[f"{SHA256_KEY}_with_frames"] = timing.pop(SHA256_KEY)
    lines = [record.header, *batches, record.closing | {"timing": timing}]
    digest = hashlib.sha256(b"".join(map(dump_line, lines))).hexdigest()
    lines[-1] = record.closing | {"timing": timing | {SHA256_KEY: digest}}
    return b"".join(map(dump_line, lines))


def copy_without_frames(source: Path, target: Path) -> list[Path]:
    """Copy the records of a folder without their frames, and return the paths of the copies.

    Raises:
        UsageError: Both folders are the same.
        DataError: See ``remove_frames``.
    """
    if source.resolve() == target.resolve():
        raise UsageError(f"{target} is the folder of the records. Choose another folder for the copies.")
    contents = {target / f"{path.name.removesuffix('.gz')}.gz": remove_frames(path) for path in find_records([source])}
    target.mkdir(parents=True, exist_ok=True)
    for path, content in contents.items():
        with atomic_path(path) as temporary:
            temporary.write_bytes(gzip.compress(content, GZIP_LEVEL, mtime=0))
    return list(contents)


def main(
    source: Annotated[Path, typer.Argument(help="Folder with records.")],
    target: Annotated[Path, typer.Argument(help="Folder for the copies.")],
) -> None:
    """Copy the records of a folder without their frames."""
    try:
        for path in copy_without_frames(source, target):
            print(path.as_posix())
    except DriftlawError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    typer.run(main)
