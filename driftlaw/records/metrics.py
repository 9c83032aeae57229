"""More than error, from records: calibration, forgetting, rounds, the worst window, time to recover, drift."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean

import numpy as np
import numpy.typing as npt

from driftlaw.records.jsonl import Line
from driftlaw.records.run_record import RunRecord

Numbers = npt.NDArray[np.float64]


# --- calibration -----------------------------------------------------------------------------------------------------


def calibration_error(record: RunRecord) -> float | None:
    """Return the expected calibration error over the whole stream, in per cent; None where it was not measured.

    Σ_k n_k/n · |correct_k − confidence_k| over bins of equal width: the answers in bin k, the share of them that is
    right, their mean confidence.
    """
    return _calibration(record.batches)


def calibration_by_domain(record: RunRecord) -> dict[str, float]:
    """Return the expected calibration error of every domain, in per cent: the mean over its segments.

    It is empty where calibration was not measured. A segment's bins are pooled over its batches.
    """
    errors: dict[str, list[float]] = {}
    for lines in _by_segment(record):
        error = _calibration(lines)
        if error is not None:
            errors.setdefault(lines[0]["domain"]["name"], []).append(error)
    return {name: fmean(values) for name, values in errors.items()}


def _calibration(lines: Iterable[Line]) -> float | None:
    told = [line["calibration"] for line in lines if "calibration" in line]
    if not told:
        return None
    count, confidence, correct = (
        np.sum([bins[name] for bins in told], axis=0, dtype=np.float64) for name in ("count", "confidence", "correct")
    )
    return 100.0 * float(np.abs(correct - confidence).sum() / count.sum())


# --- forgetting ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CleanError:
    """Per cent wrong on clean images, before the stream and after it, and on how many."""

    before: float
    after: float
    images: int

    @property
    def forgotten(self) -> float:
        """How many points the stream has cost."""
        return self.after - self.before


def clean_error(record: RunRecord) -> CleanError | None:
    """Return the errors on clean images, answered without learning; None unless a finished run has measured them."""
    told = (record.closing or {}).get("clean")
    if told is None:
        return None
    before, after = (100.0 * told[name] / told["images"] for name in ("wrong_before", "wrong_after"))
    return CleanError(before, after, told["images"])


# --- along the stream ------------------------------------------------------------------------------------------------


def error_by_round(record: RunRecord) -> list[float]:
    """Return per cent wrong in every round of a stream that comes round, the mean over its segments.

    A stream that does not come round has one; the last round of an unfinished run may be a part.
    """
    rounds: dict[int, list[float]] = {}
    for segment in record.segments:
        rounds.setdefault(segment.round, []).append(segment.error)
    return [fmean(errors) for _, errors in sorted(rounds.items())]


@dataclass(frozen=True)
class Window:
    """Some consecutive batches: the number of the first, how many, and the per cent wrong of their images."""

    first_batch: int
    batches: int
    error: float


def worst_window(record: RunRecord, batches: int = 10) -> Window | None:
    """Return the consecutive batches with the highest error, whatever domains they lie in; the first of equals.

    A stream shorter than ``batches`` is one window; None where there is no batch.
    """
    if not record.batches:
        return None
    length = min(batches, len(record.batches))
    errors = _sliding_error(record.batches, length)
    worst = int(errors.argmax())
    return Window(record.batches[worst]["batch"], length, float(errors[worst]))


@dataclass(frozen=True)
class Recovery:
    """How a segment's error came down after the shift that began it.

    Attributes:
        name: the domain.
        first_batch: number of the segment's first batch.
        length: how many batches the segment has.
        batches: how many of them had to pass; None where the error never came down.
    """

    name: str
    first_batch: int
    length: int
    batches: int | None


def recoveries(record: RunRecord, *, window: int = 3, tolerance: float = 1.0) -> list[Recovery]:
    """Return, for every segment, how many batches passed until its error had settled.

    A segment's settled error is that of its last half: its last ⌈n/2⌉ batches of n. It has recovered after k batches,
    where k is the smallest number such that the error of the ``window`` batches that follow (k+1 … k+window of the
    segment) is at most ``tolerance`` points above the settled error. 0: it was there from the start. Errors are wrong
    answers over images, so small batches count for less. Segments shorter than two windows tell nothing and are left
    out, and so is a last one that is not whole.

    Args:
        record: a run, with any measures or none.
        window: batches whose error is taken together.
        tolerance: points (per cent of images).
    """
    found = []
    for lines in _whole_segments(record):
        if len(lines) >= 2 * window:
            first = lines[0]
            passed = _batches_to_recover(lines, window, tolerance)
            found.append(Recovery(first["domain"]["name"], first["batch"], len(lines), passed))
    return found


def mean_recovery(record: RunRecord) -> float | None:
    """Return the batches until an error has settled, the mean over segments; None where no segment tells.

    A segment that never settles counts with all of its batches, which is less than the truth.
    """
    told = [item.length if item.batches is None else item.batches for item in recoveries(record)]
    return fmean(told) if told else None


def _batches_to_recover(lines: list[Line], window: int, tolerance: float) -> int | None:
    last_half = lines[len(lines) // 2 :]
    settled = float(_sliding_error(last_half, len(last_half))[0])
    recovered = np.flatnonzero(_sliding_error(lines, window) <= settled + tolerance)
    return int(recovered[0]) if len(recovered) else None


def _sliding_error(lines: list[Line], length: int) -> Numbers:
    """Return the per cent wrong of every ``length`` consecutive lines."""
    wrong, images = (
        np.convolve([line[name] for line in lines], np.ones(length), "valid") for name in ("wrong", "images")
    )
    return np.asarray(100.0 * wrong / images, dtype=np.float64)


# --- drift -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LayerDrift:
    """How far each tensor that learns has gone from the source: ‖θ − θ₀‖ / ‖θ₀‖ at the end of each domain.

    Attributes:
        tensors: their names.
        domains: the names of the segments, in the order of the stream.
        distances: (segments, tensors); nan where the source's tensor is zero or the distance is no number.
    """

    tensors: tuple[str, ...]
    domains: tuple[str, ...]
    distances: Numbers

    @property
    def mean(self) -> float:
        """The mean over tensors at the end of the stream; 0 where nothing learns, infinite where none is a number."""
        if not self.tensors:
            return 0.0
        last = self.distances[-1]
        return float(np.nanmean(last)) if np.isfinite(last).any() else float("inf")

    def farthest(self, count: int = 3) -> list[tuple[str, float]]:
        """Return the tensors that went farthest by the end of the stream, with their distances."""
        last = list(zip(self.tensors, self.distances[-1].tolist(), strict=True)) if self.tensors else []
        return sorted((item for item in last if np.isfinite(item[1])), key=lambda item: (-item[1], item[0]))[:count]


def layer_drift(record: RunRecord) -> LayerDrift | None:
    """Return the drift of a run's tensors; None where it was not measured, or no domain has ended yet."""
    tensors = record.header.get("measures", {}).get("drift", {}).get("tensors")
    ends = [line for line in record.batches if "drift" in line]
    if tensors is None or not ends:
        return None
    rows = [[np.nan if value is None else value for value in line["drift"]] for line in ends]
    distances = np.array(rows, dtype=np.float64).reshape(len(ends), len(tensors))
    return LayerDrift(tuple(tensors), tuple(line["domain"]["name"] for line in ends), distances)


# --- lines -----------------------------------------------------------------------------------------------------------


def _by_segment(record: RunRecord) -> list[list[Line]]:
    return [list(lines) for _, lines in groupby(record.batches, key=lambda line: line["segment"])]


def _whole_segments(record: RunRecord) -> list[list[Line]]:
    """Return the lines of every segment; of an unfinished run the last one may be torn and is left out."""
    segments = _by_segment(record)
    return segments if record.finished else segments[:-1]
