"""Counts the operations of finished records anew with today's counter, and writes them back beside the old numbers.

For records that were written before a mistake in the counting was put right: errors, times and everything else stay as
the run wrote them. What the run had counted stays in the record under ``counted_first``.

    python tools/recount_flops.py --data-dir DATA results/table1/cifar100-c/*.jsonl.gz
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from pathlib import Path
from typing import Any

import torch

from driftlaw.errors import DataError, UsageError
from driftlaw.files import atomic_path
from driftlaw.methods import make_adapter
from driftlaw.models import load_model
from driftlaw.profiling import count_flops
from driftlaw.records import read_record
from driftlaw.records.jsonl import dump_line
from driftlaw.records.run_record import RunRecord

IMAGES = 8  # operations are told an image; they do not hang on how many there are


def counted(record: RunRecord, data_dir: Path | None) -> dict[str, int]:
    """Return the operations of a step and of a forward pass an image, as a run counts them."""
    header = record.header
    kinds = {line.get("kind", "step") for line in record.batches}
    if len(kinds) > 1 or header["needs_source"]:
        raise SystemExit(f"{record.path}: cannot count steps of several kinds, or of a method that needs its source")
    model = load_model(header["model"]["weights"], folder=data_dir)
    adapter = make_adapter(header["method"], model, header["settings"], seed=header["seed"])
    images = torch.rand(IMAGES, 3, *header["stream"]["dataset"]["image_shape"])
    with torch.no_grad():
        _, forward = count_flops(lambda: adapter.model(images))
    adapter.step(images)
    _, step = count_flops(lambda: adapter.step(images))
    return {"step_flops_per_image": step // IMAGES, "forward_flops_per_image": forward // IMAGES}


def put_right(line: dict[str, Any], cost: dict[str, int]) -> dict[str, Any]:
    """Return a line of a record with the new count, and the old one beside it where they differ."""
    first = line.get("cost")
    if first is None or {name: first[name] for name in cost} == cost:
        return line
    return line | {"cost": cost, "counted_first": line.get("counted_first", first)}


def recount(path: Path, data_dir: Path | None) -> bool:
    """Put one record right; return whether anything changed."""
    record = read_record(path)
    cost = counted(record, data_dir)
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    written = [put_right(line, cost) for line in lines]
    if written == lines:
        return False
    text = b"".join(map(dump_line, written))
    with atomic_path(path) as temporary:  # a record is whole at any moment, the old one or the new
        temporary.write_bytes(gzip.compress(text, 9, mtime=0) if path.suffix == ".gz" else text)
    return True


def main() -> int:
    """Put the records named on the command line right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="+", type=Path)
    parser.add_argument("--data-dir", type=Path, default=None, help="where the weights lie")
    arguments = parser.parse_args()
    for path in arguments.records:
        try:
            changed = recount(path, arguments.data_dir)
        except (DataError, UsageError) as error:
            raise SystemExit(f"{path} stays as it was: {error}") from error
        print(f"{'counted anew' if changed else 'as it was'}: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
