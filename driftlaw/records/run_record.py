"""RunRecord: a run as plain data, with properties over the keys of the file format."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from math import nan
from pathlib import Path
from statistics import fmean, median
from typing import Any

from driftlaw.errors import UsageError
from driftlaw.records.jsonl import Line

FORMAT = "driftlaw-run-1"
_IOU_KEYS = ("intersection", "union")
EXECUTION_SETTINGS = {"precision", "channels_last", "capture", "overlap", "compiled"}


def predictions(line: Line) -> int:
    """Return the number of predictions that a batch line counts: its images, or its labelled pixels."""
    return int(line["pixels"] if "pixels" in line else line["images"])


def batch_error(line: Line) -> float | None:
    """Return the error of a batch line in per cent; None without labels or labelled pixels."""
    return None if line["wrong"] is None or not predictions(line) else 100.0 * line["wrong"] / predictions(line)


def class_iou(lines: Sequence[Line]) -> tuple[float | None, ...]:
    """Return the IoU of every class over some batch lines in per cent: Σ intersection / Σ union.

    A class that occurs neither in labels nor in predictions has None. Without label maps the result is empty.
    """
    counts = [line["iou"] for line in lines if "iou" in line]
    sums = ([sum(numbers) for numbers in zip(*(count[key] for count in counts), strict=True)] for key in _IOU_KEYS)
    return tuple(100.0 * intersection / union if union else None for intersection, union in zip(*sums, strict=True))


@dataclass(frozen=True)
class Segment:
    """Consecutive batches of one domain: index of the first batch, number of images and of wrong predictions.

    With label maps, predictions are those of ``pixels`` with a label, and ``class_iou`` is the IoU of every class.
    Without labels, ``wrong`` and ``error`` are None.
    """

    name: str
    severity: int
    round: int
    first_batch: int
    batches: int
    images: int
    wrong: int | None
    pixels: int | None = None
    class_iou: tuple[float | None, ...] = ()

    @property
    def error(self) -> float | None:
        """Online error in per cent: each image is predicted once, when it arrives."""
        count = self.images if self.pixels is None else self.pixels
        return None if self.wrong is None or not count else 100.0 * self.wrong / count

    @property
    def mean_iou(self) -> float | None:
        """Mean IoU in per cent over the classes that occur in labels or predictions; None without label maps."""
        known = [value for value in self.class_iou if value is not None]
        return fmean(known) if known else None


@dataclass(frozen=True, repr=False)
class RunRecord:
    """A run: ``header``, one line per batch in ``batches``, and ``closing`` (None until the run is finished).

    The lines keep the keys of the file format. Use the properties instead of the keys where there is one.

    >>> domain = {"name": "fog", "severity": 5, "round": 0}
    >>> line = {"batch": 0, "segment": 0, "domain": domain, "images": 200, "wrong": 50}
    >>> line |= {"facts": {"layer_weights": [0.2, 1.0]}, "timing": {"seconds": 0.1}}
    >>> record = RunRecord({"method": "law", "seed": 1}, [line])
    >>> record.mean_error, record.diagnostics("layer_weights")
    (25.0, [[0.2, 1.0]])
    """

    header: Line
    batches: list[Line]
    closing: Line | None = None
    path: Path | None = None

    def __repr__(self) -> str:
        parts = [self.method, f"seed {self.seed}", *([] if self.finished else ["unfinished"])]
        if self.batches:
            parts.append(self.error_text)
        return f"<RunRecord: {', '.join([*parts, f'{len(self.batches)} batches', self.location])}>"

    @property
    def method(self) -> str:
        """Name of the method."""
        return str(self.header["method"])

    @property
    def seed(self) -> int:
        """Seed of the stream and of the adapter."""
        return int(self.header["seed"])

    @property
    def settings(self) -> dict[str, Any]:
        """Settings that change predictions: the method's, and of the execution settings bf16 and compilation."""
        settings = {name: value for name, value in self.header["settings"].items() if name not in EXECUTION_SETTINGS}
        if (precision := self.execution.get("precision", "float32")) != "float32":
            settings["precision"] = precision
        return settings | ({"compiled": True} if self.execution.get("compiled") else {})

    @property
    def execution(self) -> dict[str, Any]:
        """How steps ran: precision, memory layout, capture, compilation. Empty if the record does not say."""
        return dict(self.header.get("execution", {}))

    @property
    def needs_train_data(self) -> bool:
        """True if the method used training data."""
        return bool(self.header.get("needs_source", False))

    @property
    def metrics(self) -> frozenset[str]:
        """Names of the extra metrics that were measured, such as ``calibration``."""
        return frozenset(self.header.get("measures", {}))

    @property
    def cost(self) -> dict[str, int]:
        """FLOPs per image of a step and of a forward pass; empty if they were not counted."""
        lines = [self.closing or {}, *self.batches[:1]]
        return next((dict(line["cost"]) for line in lines if line.get("cost")), {})

    @property
    def timing(self) -> dict[str, Any]:
        """Timing of the whole run: seconds, seconds per step, peak bytes. Empty until the run is finished."""
        return dict((self.closing or {}).get("timing", {}))

    @property
    def shared_gpu(self) -> bool:
        """True if other processes used the GPU during the run, so that its times are not reliable."""
        return bool(self.timing.get("shared_gpu"))

    @property
    def load_average(self) -> tuple[float, float]:
        """Load average of the machine over one minute, at the start and at the end of the run; 0 if not recorded."""
        load = self.timing.get("load_average", {})
        return float(load.get("start", 0.0)), float(load.get("end", 0.0))

    @property
    def busy_machine(self) -> bool:
        """True if more processes were ready to run than the machine has CPUs, so that times may be too long."""
        cpus = self.timing.get("load_average", {}).get("cpus")
        return cpus is not None and max(self.load_average) > cpus + 1  # a run alone has at most one thread per CPU

    @property
    def finished(self) -> bool:
        """True if the run reached the end of its stream."""
        return self.closing is not None

    @property
    def location(self) -> str:
        """Path of the record for messages."""
        return self.path.as_posix() if self.path else "a run in memory"

    @property
    def segment_lines(self) -> list[list[Line]]:
        """Batch lines of each segment."""
        return [list(lines) for _, lines in groupby(self.batches, key=lambda line: line["segment"])]

    @cached_property
    def segments(self) -> list[Segment]:
        """Segments in the order of the stream."""
        return [
            Segment(
                **{key: lines[0]["domain"][key] for key in ("name", "severity", "round")},
                first_batch=lines[0]["batch"],
                batches=len(lines),
                images=sum(line["images"] for line in lines),
                wrong=sum(line["wrong"] for line in lines) if lines[0]["wrong"] is not None else None,
                pixels=sum(line["pixels"] for line in lines) if "pixels" in lines[0] else None,
                class_iou=class_iou(lines),
            )
            for lines in self.segment_lines
        ]

    @property
    def error_by_domain(self) -> dict[str, float]:
        """Error per domain name in per cent, averaged over its segments (rounds, severities); empty without labels."""
        return _means((segment.name, segment.error) for segment in self.segments)

    @property
    def mean_error(self) -> float | None:
        """Error in per cent, averaged over segments; None without labels."""
        self._require_batches()
        errors = [segment.error for segment in self.segments if segment.error is not None]
        return fmean(errors) if errors else None

    @property
    def mean_iou(self) -> float | None:
        """Mean IoU (mIoU) in per cent, averaged over segments; None without label maps."""
        known = [segment.mean_iou for segment in self.segments if segment.mean_iou is not None]
        return fmean(known) if known else None

    @property
    def mean_iou_by_domain(self) -> dict[str, float]:
        """Mean IoU per domain name in per cent, averaged over its segments; empty without label maps."""
        return _means((segment.name, segment.mean_iou) for segment in self.segments)

    @cached_property
    def class_names(self) -> list[str]:
        """Names of the classes of label maps, or their numbers if they have none; empty without label maps."""
        count = max((len(segment.class_iou) for segment in self.segments), default=0)
        dataset = self.header.get("stream", {}).get("dataset")
        known = dataset.get("class_names") if isinstance(dataset, dict) else None
        return [str(name) for name in (known if isinstance(known, list) and len(known) == count else range(count))]

    @property
    def iou_by_class(self) -> dict[str, float]:
        """IoU per class in per cent, averaged over the segments in which the class occurs; empty without label maps."""
        return _means(pair for part in self.segments for pair in zip(self.class_names, part.class_iou, strict=False))

    def iou_summary(self, digits: int = 6) -> Line:
        """Return mean IoU, by domain and by class, as JSON data; empty without label maps."""
        if self.mean_iou is None:
            return {}
        parts = {"mean_iou_by_domain": self.mean_iou_by_domain, "iou_by_class": self.iou_by_class}
        rounded = {key: {name: round(value, digits) for name, value in part.items()} for key, part in parts.items()}
        return {"mean_iou": round(self.mean_iou, digits), **rounded}

    @property
    def not_finite(self) -> int:
        """Number of predictions whose logits were NaN or infinite; they count as wrong predictions."""
        return sum(line.get("not_finite", 0) for line in self.batches)

    @property
    def error_text(self) -> str:
        """Mean error as text, with the mean IoU for label maps and the number of predictions that were not finite."""
        error = "no labels" if self.mean_error is None else f"{self.mean_error:.2f} % error"
        error += "" if self.mean_iou is None else f", {self.mean_iou:.2f} % mIoU"
        return f"{error}, {self.not_finite:,} predictions not finite" if self.not_finite else error

    @property
    def seconds_per_step(self) -> float:
        """Median over steps, without the first one (warm-up) if there are others.

        If steps are of several kinds, the result is the mean of the kinds' medians, weighted by their frequency.
        """
        self._require_batches()
        kinds: dict[str, list[float]] = {}
        for line in self.batches[1:] or self.batches:
            kinds.setdefault(line.get("kind", "step"), []).append(line["timing"]["seconds"])
        steps = sum(map(len, kinds.values()))
        return sum(len(seconds) * float(median(seconds)) for seconds in kinds.values()) / steps

    def _require_batches(self) -> None:
        if not self.batches:
            raise UsageError(f"The record {self.location} has no batches yet. Resume its run first.")

    def diagnostics(self, name: str) -> list[list[float]]:
        """Return one row per step of a diagnostic, such as LAW's ``layer_weights``. Values that are not finite are nan.

        Steps without the diagnostic are skipped.
        """
        rows = [line["facts"][name] for line in self.batches if name in line["facts"]]
        lists = (row if isinstance(row, list) else [row] for row in rows)
        return [[nan if value is None else value for value in row] for row in lists]

    def diagnostic_labels(self, name: str) -> list[str]:
        """Return the labels of a diagnostic's values, such as the layer names; empty if there are none."""
        return [str(label) for label in self.header.get("fact_labels", {}).get(name, [])]


def _means(items: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    """Return the mean of the known values of every name."""
    values: dict[str, list[float]] = {}
    for name, value in items:
        if value is not None:
            values.setdefault(name, []).append(value)
    return {name: fmean(known) for name, known in values.items()}
