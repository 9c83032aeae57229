"""Reading of run records: types and hashes are checked, so that damaged and changed files are noticed."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from driftlaw.errors import DataError
from driftlaw.records.jsonl import SHA256_KEY, Line, first_line, iter_lines
from driftlaw.records.run_record import FORMAT, RunRecord
from driftlaw.records.schema import BatchLine, ClosingLine, HeaderLine, check_line

HEADER_FIELDS = (
    *("driftlaw", "device", "seed", "method", "settings", "reset_on", "batches", "model.name"),
    *("stream.dataset.name", "stream.schedule"),
)


def read_record(path: Path) -> RunRecord:
    """Read the record of a run, finished or not.

    Raises:
        DataError: the file is not the record of a driftlaw run, is damaged, or was changed after the run.
    """
    lines: list[Line] = []
    closing, digest = None, hashlib.sha256()
    for text, line in iter_lines(path):
        if closing is not None:
            raise DataError(f"The record is damaged: {path} has lines after its closing line. Delete it and run again.")
        where = f"{path}, line {len(lines) + 1}"
        if not lines and line.get("format") == FORMAT:
            check_line(HeaderLine, line, where)
        elif not lines:
            break
        elif line.get("closing"):
            check_line(ClosingLine, closing := line, where)
            stated = line.get("timing", {}).get(SHA256_KEY)
            digest.update(text.replace(f',"{SHA256_KEY}":"{stated}"'.encode(), b""))
            if stated not in (None, digest.hexdigest()):
                raise DataError(
                    f"The record {path} was changed after the run: its lines differ from the {SHA256_KEY} in its "
                    "closing line. Restore the file, or delete it and run again."
                )
            continue
        else:
            check_line(BatchLine, line, where)
            if line["batch"] != len(lines) - 1:
                raise DataError(
                    f"The record was changed: {where} has batch {line['batch']}, expected {len(lines) - 1}. Lines are "
                    "missing or in another order. Restore the file, or delete it and run again."
                )
        digest.update(text)
        lines.append(line)
    if not lines:
        raise DataError(f"Not the record of a driftlaw run: {path} does not start with a header of format {FORMAT}.")
    return RunRecord(header=lines[0], batches=lines[1:], closing=closing, path=path)


def validate_record(record: RunRecord) -> RunRecord:
    """Return the record if it is complete and consistent.

    Raises:
        DataError: fields of the header are missing, a batch is empty, or the closing line contradicts the batches.
    """
    problems = [f"the header has no '{field}'" for field in HEADER_FIELDS if not _has(record.header, field)]
    problems += [f"batch {number} has no images" for number, line in enumerate(record.batches) if line["images"] < 1]
    if len({line["wrong"] is None for line in record.batches}) > 1:
        problems += ["some batches have labels and others have none"]
    tensors = record.header.get("measures", {}).get("drift", {}).get("tensors", [])
    drifts = {len(line["drift"]) for line in record.batches if "drift" in line}
    if not isinstance(tensors, list) or drifts - {len(tensors)}:
        problems += ["its drift does not have one number per tensor of the header"]
    measured = [line["calibration"] for line in record.batches if line.get("calibration")]
    bins = [line[name] for line in measured for name in ("count", "confidence", "correct")]
    if len(set(map(len, bins))) > 1:
        problems += ["its calibration does not have the same bins in all batches"]
    counts = [line["iou"][name] for line in record.batches if line.get("iou") for name in ("intersection", "union")]
    if len(counts) not in (0, 2 * len(record.batches)) or len(set(map(len, counts))) > 1:
        problems += ["its intersections and unions do not have the same classes in all batches"]
    if not problems and record.closing is not None:
        planned = record.header["batches"]
        if planned not in (None, len(record.batches)) or not record.batches:
            problems = [f"it has a closing line after {len(record.batches)} of {planned} batches"]
        for key, found in (("mean_error", record.mean_error), ("mean_iou", record.mean_iou)) if not problems else ():
            recorded = record.closing.get(key)
            if recorded != found and (recorded is None or found is None or abs(recorded - found) > 0.01):
                problems += [f"the closing line has a {key.replace('_', ' ')} of {recorded}, the batches have {found}"]
    if problems:
        more = f" (and {len(problems) - 3} more problems)" if len(problems) > 3 else ""
        raise DataError(
            f"The record {record.location} is damaged: {'; '.join(problems[:3])}{more}. Delete it and run again."
        )
    return record


def _has(line: Any, field: str) -> bool:
    """Return True if a line has a field; dots separate the keys of nested objects."""
    for name in field.split("."):
        if not isinstance(line, dict) or name not in line:
            return False
        line = line[name]
    return True


def find_records(paths: Iterable[Path]) -> list[Path]:
    """Return the run records among files and folders (searched recursively), without duplicates, sorted per folder."""
    paths = list(paths)
    records: dict[Path, None] = {}
    for path in paths:
        if not path.exists():
            raise DataError(f"No record at {path}. Pass .jsonl files, or folders that contain some.")
        if path.is_dir():
            candidates = sorted([*path.rglob("*.jsonl"), *path.rglob("*.jsonl.gz")])
            records.update((item, None) for item in candidates if _is_run_record(item))
        else:
            records[path] = None
    if not records:
        raise DataError(f"No run records in {', '.join(map(str, paths))}. `driftlaw run` writes them.")
    return list(records)


def _is_run_record(path: Path) -> bool:
    """Return True if a file starts with the header of a run, even a damaged one: reading it then reports the damage."""
    opening = first_line(path)
    try:
        header = json.loads(opening)
    except ValueError:
        return opening.endswith(b"\n") and FORMAT.encode() in opening
    return isinstance(header, dict) and header.get("format") == FORMAT
