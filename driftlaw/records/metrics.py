"""Metrics computed from records: calibration, forgetting, error per round, worst window, recovery time, drift."""

from dataclasses import dataclass
from statistics import fmean

import numpy as np
import numpy.typing as npt

from driftlaw.records.jsonl import Line
from driftlaw.records.run_record import RunRecord, predictions

Numbers = npt.NDArray[np.float64]


def calibration_error(record: RunRecord) -> float | None:
    """Return the expected calibration error over the whole stream in per cent; None if it was not measured.

    ECE = Σ_k n_k/n · |accuracy_k − confidence_k| over bins of equal width, where n_k is the number of predictions in
    bin k, accuracy_k the fraction that is correct, and confidence_k their mean confidence.
    """
    measured = [line["calibration"] for line in record.batches if line.get("calibration")]
    if not measured:
        return None
    count, confidence, correct = (
        np.sum([bins[name] for bins in measured], axis=0, dtype=np.float64)
        for name in ("count", "confidence", "correct")
    )
    return 100.0 * float(np.abs(correct - confidence).sum() / count.sum()) if count.any() else None


@dataclass(frozen=True)
class CleanError:
    """Error on clean images in per cent (of pixels with label maps), before and after the stream, and their number."""

    before: float
    after: float
    images: int

    @property
    def forgotten(self) -> float:
        """Forgetting in percentage points: error after the stream minus error before it."""
        return self.after - self.before


def clean_error(record: RunRecord) -> CleanError | None:
    """Return the errors on clean images (predicted without updates); None if not measured or the run is unfinished."""
    clean = (record.closing or {}).get("clean")
    if clean is None:
        return None
    count = max(clean.get("pixels", clean["images"]), 1)  # label maps may have no labelled pixel
    before, after = (100.0 * clean[name] / count for name in ("wrong_before", "wrong_after"))
    return CleanError(before, after, clean["images"])


def error_by_round(record: RunRecord) -> list[float]:
    """Return the error in per cent of every round of a recurring stream, averaged over the round's segments.

    Other streams have one round. The last round of an unfinished run may be incomplete. Without labels there is none.
    """
    rounds: dict[int, list[float]] = {}
    for segment in record.segments:
        if segment.error is not None:
            rounds.setdefault(segment.round, []).append(segment.error)
    return [fmean(errors) for _, errors in sorted(rounds.items())]


@dataclass(frozen=True)
class Window:
    """Consecutive batches: index of the first, number of batches, and error of their images in per cent."""

    first_batch: int
    batches: int
    error: float


def worst_window(record: RunRecord, batches: int = 10) -> Window | None:
    """Return the consecutive batches with the highest error, across domains; the first such window if several.

    A stream shorter than ``batches`` is one window. The result is None if there are no batches or no labels.
    """
    if not record.batches or record.mean_error is None:
        return None
    length = min(batches, len(record.batches))
    errors = _sliding_error(record.batches, length)
    worst = int(errors.argmax())
    return Window(record.batches[worst]["batch"], length, float(errors[worst]))


@dataclass(frozen=True)
class Recovery:
    """Recovery of the error after the shift at the start of a segment.

    Attributes:
        name: domain of the segment.
        first_batch: index of the segment's first batch.
        length: number of batches in the segment.
        batches: number of batches until recovery; None if the error did not recover.
    """

    name: str
    first_batch: int
    length: int
    batches: int | None


def recoveries(record: RunRecord, *, window: int = 3, tolerance: float = 1.0) -> list[Recovery]:
    """Return the number of batches until the error has settled, for every segment.

    The settled error is the error of the last ⌈n/2⌉ of the segment's n batches. The segment has recovered after k
    batches, where k ≥ 0 is the smallest number such that the error of batches k+1 … k+window is at most ``tolerance``
    percentage points above the settled error. Errors are wrong predictions over images, so small batches count less.
    Segments shorter than two windows are skipped, and so are an incomplete last segment and batches without labels.

    Args:
        record: a run; no extra metrics are needed.
        window: number of batches whose error is averaged.
        tolerance: in percentage points.
    """
    results = []
    segments = record.segment_lines
    for lines in segments if record.finished else segments[:-1]:
        if len(lines) >= 2 * window and lines[0]["wrong"] is not None:
            last_half = lines[len(lines) // 2 :]
            settled = _sliding_error(last_half, len(last_half))[0]
            recovered = np.flatnonzero(_sliding_error(lines, window) <= settled + tolerance)
            batches = int(recovered[0]) if len(recovered) else None
            results.append(Recovery(lines[0]["domain"]["name"], lines[0]["batch"], len(lines), batches))
    return results


def mean_recovery(record: RunRecord) -> float | None:
    """Return the mean number of batches until the error has settled; None if no segment is long enough.

    A segment that never settles counts with all of its batches, which is a lower bound.
    """
    batches = [item.length if item.batches is None else item.batches for item in recoveries(record)]
    return fmean(batches) if batches else None


def _sliding_error(lines: list[Line], length: int) -> Numbers:
    """Return the error in per cent of every ``length`` consecutive lines."""
    wrong, count = (
        np.convolve(numbers, np.ones(length), "valid")
        for numbers in ([line["wrong"] for line in lines], [predictions(line) for line in lines])
    )
    return np.asarray(100.0 * wrong / np.maximum(count, 1), dtype=np.float64)  # 0 without labelled pixels


@dataclass(frozen=True)
class LayerDrift:
    """Relative distance of each trainable tensor from the source model, ‖θ − θ₀‖ / ‖θ₀‖, at the end of each domain.

    Attributes:
        tensors: names of the tensors.
        domains: domain names of the segments, in the order of the stream.
        distances: shape (segments, tensors); nan if θ₀ is zero or the distance is not finite.
    """

    tensors: tuple[str, ...]
    domains: tuple[str, ...]
    distances: Numbers

    @property
    def mean(self) -> float:
        """Mean over tensors at the end of the stream; 0 without tensors, infinite if no distance is finite."""
        if not self.tensors:
            return 0.0
        last = self.distances[-1]
        return float(np.nanmean(last)) if np.isfinite(last).any() else float("inf")

    def farthest(self, count: int = 3) -> list[tuple[str, float]]:
        """Return the tensors with the largest distances at the end of the stream, and those distances."""
        last = list(zip(self.tensors, self.distances[-1].tolist(), strict=True)) if self.tensors else []
        return sorted((item for item in last if np.isfinite(item[1])), key=lambda item: (-item[1], item[0]))[:count]


def layer_drift(record: RunRecord) -> LayerDrift | None:
    """Return the parameter drift of a run; None if it was not measured or no domain has ended yet."""
    tensors = record.header.get("measures", {}).get("drift", {}).get("tensors")
    ends = [line for line in record.batches if "drift" in line]
    if tensors is None or not ends:
        return None
    rows = [[np.nan if value is None else value for value in line["drift"]] for line in ends]
    distances = np.array(rows, dtype=np.float64).reshape(len(ends), len(tensors))
    return LayerDrift(tuple(tensors), tuple(line["domain"]["name"] for line in ends), distances)
