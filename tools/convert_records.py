"""Converts committed records of earlier formats to the current format.

    python -m tools.convert_records results

Errors, times and all other measurements stay as they are. What is converted:

- Run records without ``execution``, which the commits f787e55 and 3bc1f3d did not write yet. The values follow from the
  code of these commits: f787e55 ran steps as its default settings say (bf16 autocast and CUDA graphs on an H200,
  channels last), and 3bc1f3d ran float32 on the CPU, channels last.
- Tuning files without ``choose``. At the time the setting with the lowest error was always chosen.
- Benchmark records: labels of the baselines ('naive LAW' instead of 'plain LAW'), the command (``python -m benchmarks``
  instead of ``driftlaw bench``, ``--out`` without the folder of the machine), the description of the device, and the
  description of how memory was measured.

Files in the current format are not touched, and converting twice changes nothing.
"""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.memory import MEMORY_PROTOCOLS
from benchmarks.roofline import RULE
from benchmarks.tune.files import write_tuning
from driftlaw.files import atomic_path
from driftlaw.records.jsonl import GZIP_LEVEL, dump_line, read_lines
from driftlaw.records.run_record import FORMAT
from driftlaw.records.tuning_file import TUNING_FORMAT

EXECUTION = {
    "f787e55": {"precision": "bf16", "channels_last": True, "capture": True, "compiled": False},
    "3bc1f3d": {"precision": "float32", "channels_last": True, "capture": False, "compiled": False},
}
"""How steps ran, by the commit of records that do not say so."""
LABELS = {"plain TENT": "naive TENT", "plain LAW": "naive LAW"}
COMMANDS = {"facts": "diagnostics", "floor": "roofline"}


def convert_run(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the lines of a run record in the current format."""
    header = lines[0]
    execution = EXECUTION.get(str(header.get("commit")))
    if "execution" in header or execution is None:
        return lines
    converted: dict[str, Any] = {}
    for name, value in header.items():
        converted[name] = value
        if name == "settings":  # where a run writes it
            converted["execution"] = execution
    return [converted, *lines[1:]]


def convert_tuning(document: dict[str, Any]) -> dict[str, Any]:
    """Return a tuning file in the current format."""
    if "choose" in document:
        return document
    converted: dict[str, Any] = {}
    for name, value in document.items():
        converted[name] = value
        if name == "search":
            converted["choose"] = "lowest"
    return converted


def convert_bench(record: dict[str, Any]) -> dict[str, Any]:
    """Return a benchmark record in the current format."""
    converted = json.loads(json.dumps(record))
    if isinstance(record["device"], str):
        device = {"type": "cuda", "name": record["device"], "threads": converted.pop("threads")}
        converted["device"] = device
    for row in [*converted.get("rows", []), *converted.get("stream", [])]:
        if row.get("label") in LABELS:
            row["label"] = LABELS[row["label"]]
    if "rule" in converted:
        converted["rule"] = RULE
    for name in ("measured", "memory_measured"):
        if text := converted.get(name):
            converted[name] = _memory_protocol(text)
    command = re.sub(
        r"^driftlaw bench (\w+)", lambda match: f"python -m benchmarks {_command(match[1])}", record["command"]
    )
    command = re.sub(r"(?<=--out )/\S*/", "", command)
    for old, new in LABELS.items():
        command = command.replace(old, new)
    return converted | {"command": command}


def _command(name: str) -> str:
    return COMMANDS.get(name, name)


def _memory_protocol(text: str) -> str:
    """Return the current description of a way to measure memory. Early CPU records do not say how passes ran."""
    if text.startswith("most bytes"):
        return MEMORY_PROTOCOLS["cuda"]
    if text.startswith("bytes of torch's CPU"):
        current = MEMORY_PROTOCOLS["cpu"]
        return current if "one after the other" in text else current.replace(", with its passes run sequentially", "")
    return text


def convert_file(path: Path) -> bool:
    """Convert one file in place; return True if it changed."""
    if path.suffix == ".json":
        document = json.loads(path.read_text(encoding="utf-8"))
        if document.get("format") == TUNING_FORMAT:
            if (converted := convert_tuning(document)) != document:
                write_tuning(converted, path)
                return True
        elif "bench" in document and (converted := convert_bench(document)) != document:
            with atomic_path(path) as temporary:
                temporary.write_text(json.dumps(converted, indent=2) + "\n", encoding="utf-8")
            return True
        return False
    lines = read_lines(path)
    converted_lines = convert_run(lines) if lines and lines[0].get("format") == FORMAT else lines
    if converted_lines == lines:
        return False
    content = b"".join(map(dump_line, converted_lines))
    with atomic_path(path) as temporary:
        temporary.write_bytes(gzip.compress(content, GZIP_LEVEL, mtime=0) if path.suffix == ".gz" else content)
    return True


def main(folder: Annotated[Path, typer.Argument(help="Folder with records, searched recursively.")]) -> None:
    """Convert the records in a folder to the current format."""
    files = [path for pattern in ("*.json", "*.jsonl", "*.jsonl.gz") for path in sorted(folder.rglob(pattern))]
    for path in files:
        if convert_file(path):
            print(path.as_posix())


if __name__ == "__main__":
    typer.run(main)
