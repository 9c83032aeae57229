"""A run read back: its header, a line a batch, its closing line, and the figures that follow from them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import nan
from pathlib import Path
from statistics import fmean, median
from typing import Any

from driftlaw.errors import DataError, UsageError
from driftlaw.records.jsonl import Line, first_line, read_lines

FORMAT = "driftlaw-run-1"
HOW_A_STEP_IS_RUN = {"precision", "channels_last", "capture", "overlap", "compiled"}
BATCH_KEYS = ("batch", "segment", "domain", "images", "wrong", "facts", "timing")


@dataclass(frozen=True)
class Segment:
    """An unbroken stretch of one domain: where it starts (batch number), how many images, how many wrong answers."""

    name: str
    severity: int
    round: int
    first_batch: int
    batches: int
    images: int
    wrong: int

    @property
    def error(self) -> float:
        """Online error in per cent: each image answered when it arrived."""
        return 100.0 * self.wrong / self.images


@dataclass(frozen=True)
class RunRecord:
    """What a run wrote: ``header``, ``batches`` (a line each) and ``closing`` (None while the run is unfinished).

    A batch line holds ``batch``, ``segment``, ``domain`` (``name``, ``severity``, ``round``), ``images``, ``wrong``,
    ``facts`` and, apart from all that, ``timing``.
    """

    header: Line
    batches: list[Line]
    closing: Line | None = None
    path: Path | None = None

    @property
    def method(self) -> str:
        """The name of the method that ran."""
        return str(self.header["method"])

    @property
    def seed(self) -> int:
        """The seed of stream and adapter."""
        return int(self.header["seed"])

    @property
    def settings(self) -> dict[str, Any]:
        """The method's settings as far as they change answers: of how a step was run, what rounds it otherwise."""
        told = {name: value for name, value in self.header["settings"].items() if name not in HOW_A_STEP_IS_RUN}
        execution = self.header.get("execution", {})
        precision = execution.get("precision", "float32")
        return (
            told
            | ({} if precision == "float32" else {"precision": precision})
            | ({"compiled": True} if execution.get("compiled") else {})
        )

    @property
    def finished(self) -> bool:
        """Whether the stream was run to its end."""
        return self.closing is not None

    @cached_property
    def segments(self) -> list[Segment]:
        """The stretches of one domain, in the order of the stream."""
        grouped: dict[int, list[Line]] = {}
        for line in self.batches:
            grouped.setdefault(line["segment"], []).append(line)
        return [_segment(lines) for lines in grouped.values()]

    @property
    def error_by_domain(self) -> dict[str, float]:
        """Per cent wrong for every domain's name, the mean over its segments (rounds, severities)."""
        errors: dict[str, list[float]] = {}
        for segment in self.segments:
            errors.setdefault(segment.name, []).append(segment.error)
        return {name: fmean(values) for name, values in errors.items()}

    @property
    def mean_error(self) -> float:
        """Per cent wrong, the mean over segments."""
        self._refuse_empty()
        return fmean(segment.error for segment in self.segments)

    @property
    def shared_gpu(self) -> bool:
        """Whether others were at work on the run's GPU, so that its seconds are not those of its steps alone."""
        return bool((self.closing or {}).get("timing", {}).get("shared_gpu"))

    @property
    def seconds_per_step(self) -> float:
        """The median over steps; the first one, which warms everything up, is left out where there are others.

        Where steps are of several kinds, each kind's median counts as often as the kind comes.
        """
        self._refuse_empty()
        kinds: dict[str, list[float]] = {}
        for line in self.batches[1:] or self.batches:
            kinds.setdefault(line.get("kind", "step"), []).append(line["timing"]["seconds"])
        steps = sum(map(len, kinds.values()))
        return sum(len(seconds) * float(median(seconds)) for seconds in kinds.values()) / steps

    def _refuse_empty(self) -> None:
        if not self.batches:
            raise UsageError(f"the record {self.path or ''} holds no batch yet: let its run go on, then report it")

    def fact(self, name: str) -> list[list[float]]:
        """Return one row a step of a fact that the method offers, such as LAW's ``layer_weights``.

        What a network that has gone to pieces says is nan.
        """
        rows = [line["facts"][name] for line in self.batches if name in line["facts"]]
        return [[nan if value is None else value for value in _as_list(row)] for row in rows]


def _as_list(row: Any) -> list[Any]:
    return row if isinstance(row, list) else [row]


def _segment(lines: list[Line]) -> Segment:
    domain = lines[0]["domain"]
    return Segment(
        name=domain["name"],
        severity=domain["severity"],
        round=domain["round"],
        first_batch=lines[0]["batch"],
        batches=len(lines),
        images=sum(line["images"] for line in lines),
        wrong=sum(line["wrong"] for line in lines),
    )


def read_record(path: Path) -> RunRecord:
    """Read a run's record, finished or not."""
    lines = read_lines(path)
    if not lines or lines[0].get("format") != FORMAT:
        raise DataError(f"{path} does not open with a header of format {FORMAT}: not the record of a driftlaw run")
    closing = lines[-1] if lines[-1].get("closing") else None
    batches = lines[1:-1] if closing else lines[1:]
    for number, line in enumerate(batches, start=2):
        _check_batch(line, path, number)
    return RunRecord(header=lines[0], batches=batches, closing=closing, path=path)


def _check_batch(line: Line, path: Path, number: int) -> None:
    missing = [key for key in BATCH_KEYS if key not in line]
    if missing:
        raise DataError(f"{path}, line {number} has no {', '.join(missing)}: the record is damaged; make it again")


def find_records(paths: Iterable[Path]) -> list[Path]:
    """Return the run records among files and folders (searched all the way down), each once, in a stable order."""
    found: dict[Path, None] = {}
    paths = list(paths)
    for path in paths:
        if not path.exists():
            raise DataError(f"no record at {path}: give .jsonl files or folders that hold some")
        candidates = sorted([*path.rglob("*.jsonl"), *path.rglob("*.jsonl.gz")]) if path.is_dir() else [path]
        found.update((item, None) for item in candidates if not path.is_dir() or _is_run(item))
    if not found:
        raise DataError(f"no run record in {', '.join(map(str, paths))}: `driftlaw run` writes them")
    return list(found)


def _is_run(path: Path) -> bool:
    """Tell whether a file opens with a run's header; other people's lines in a folder are none of our business.

    Of a run that was damaged in its first line some of the header is left: who reads it will say so.
    """
    opening = first_line(path)
    try:
        header = json.loads(opening)
    except ValueError:
        return opening.endswith(b"\n") and FORMAT.encode() in opening
    return isinstance(header, dict) and header.get("format") == FORMAT
