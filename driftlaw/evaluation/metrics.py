"""Optional metrics of a run besides its error: calibration, forgetting, drift, comparison with the source, frames."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import chain, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from driftlaw.base import Adapter, Batch, Monitor, Stream
from driftlaw.base.diagnostics import diagnostics_to_json
from driftlaw.errors import UsageError, unknown_name
from driftlaw.evaluation.frames import LONGEST_SIDE, MAX_FRAMES, encode_frame
from driftlaw.evaluation.predictions import IGNORE_INDEX, compare, labelled_pixels
from driftlaw.hardware import to_device
from driftlaw.records.jsonl import Line

METRICS = ("calibration", "forgetting", "drift", "agreement", "frames")
BINS = 15  # of equal width, as in Guo et al. (ICML 2017)
CLEAN_IMAGES = 2000  # at most; the standard error of a 6 % error rate is then about 0.5 percentage points


class OnlineMetrics:
    """Metrics that need the logits, the parameters or the clean images while the run is in progress.

    Without names nothing is computed and nothing is added to the record. ``agreement`` sets ``adapter.monitor``, unless
    it is set already, so that every tenth step is compared with the source model.

    Args:
        names: some of ``METRICS``.
        stream: stream of the run. For ``forgetting`` it needs a method ``clean(limit)``.
        adapter: adapter before its first step.
        ignore_index: label of pixels without a class, in label maps.
    """

    def __init__(
        self, names: Collection[str], stream: Stream, adapter: Adapter, ignore_index: int = IGNORE_INDEX
    ) -> None:
        for name in names:
            if name not in METRICS:
                raise unknown_name("metric", name, METRICS)
        if "agreement" in names and not adapter.monitor.every:
            adapter.monitor = Monitor()
        measured = {*names, *(["agreement"] if adapter.monitor.every else [])}
        self.names = tuple(name for name in METRICS if name in measured)
        self.adapter, self.ignore_index = adapter, ignore_index
        self.clean: Iterable[Batch] = ()
        if "forgetting" in self.names:
            if not hasattr(stream, "clean"):
                raise UsageError(
                    f"The metric 'forgetting' needs clean images, but {type(stream).__name__} has none. "
                    "Give the stream a method clean(limit) that returns a stream of clean images, or omit the metric."
                )
            self.clean = stream.clean(CLEAN_IMAGES)

    def header(self) -> Line:
        """Return the metrics' part of the record's header, empty if there are none."""
        at_most, tensors = {"at_most": CLEAN_IMAGES}, {"tensors": self.adapter.trainable_names}
        parts: dict[str, Line] = {"calibration": {"bins": BINS}, "forgetting": at_most, "drift": tensors}
        parts["agreement"] = asdict(self.adapter.monitor)
        parts["frames"] = {"at_most": MAX_FRAMES, "longest_side": LONGEST_SIDE}
        return {"measures": {name: parts[name] for name in self.names}} if self.names else {}

    def of_batch(self, logits: Tensor, labels: Tensor) -> Line:
        """Return the part of a batch line that depends on its logits."""
        if "calibration" not in self.names:
            return {}
        if labels.ndim == 3:
            logits, labels = labelled_pixels(logits, labels, self.ignore_index)
        return {"calibration": confidence_bins(logits, labels)}

    def check_labels(self, labels: Tensor | None) -> None:
        """Raise UsageError if a metric needs other labels than those of a batch."""
        if labels is None and "calibration" in self.names:
            raise UsageError("The metric 'calibration' needs labels, but the stream has none. Omit it from metrics.")
        if "frames" in self.names and (labels is None or labels.ndim != 3):
            found = "no labels" if labels is None else "one label per image"
            raise UsageError(
                f"The metric 'frames' needs label maps (n, h, w), but the stream has {found}. Omit it from metrics."
            )

    def of_frame(self, batch: Batch, images: Tensor, logits: Tensor, lines: Sequence[Line]) -> Line:
        """Return the part of a line with the first frame of the last batch of a domain.

        Frames are stored in rounds 1, 2, 4, 8 and so on, at most ``MAX_FRAMES`` per run.

        Args:
            batch: last batch of a domain.
            images: its images as they were passed to the adapter.
            logits: its logits.
            lines: lines of all batches before it.
        """
        is_stored = "frames" in self.names and not batch.domain.round & (batch.domain.round + 1)
        if not is_stored or sum("frame" in line for line in lines) >= MAX_FRAMES:
            return {}
        assert batch.labels is not None
        image = self.adapter.inputs.to_unit(images[:1], self.adapter.model, check_values=False)[0]
        return {"frame": encode_frame(image, logits[0], batch.labels[0], self.ignore_index)}

    def with_domain_ends(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, bool]]:
        """Yield each batch with a flag that is True for the last batch of a domain.

        This reads one batch ahead, which only ``drift`` and ``frames`` need. Without them the flag is always False.
        """
        if not {"drift", "frames"} & set(self.names):
            yield from ((batch, False) for batch in batches)
            return
        for batch, following in pairwise(chain(batches, [None])):
            assert batch is not None
            yield batch, following is None or following.starts_domain

    def of_domain(self, *, ended: bool) -> Line:
        """Return the drift of every adapted tensor if the domain has ended, else nothing."""
        if not ended or "drift" not in self.names:
            return {}
        return diagnostics_to_json({"drift": self.adapter.layer_distances()})

    def before_stream(self) -> Line:
        """Return the part of the first batch line: errors on clean images before adaptation."""
        return {"clean": self._clean_errors()} if "forgetting" in self.names else {}

    def after_stream(self, first_line: Line) -> Line:
        """Return the part of the closing line: errors on clean images before and after adaptation."""
        if "forgetting" not in self.names:
            return {}
        before, after = first_line["clean"]["wrong"], self._clean_errors()
        pixels = {"pixels": after["pixels"]} if "pixels" in after else {}
        return {"clean": {"images": after["images"], **pixels, "wrong_before": before, "wrong_after": after["wrong"]}}

    def _clean_errors(self) -> Line:
        weight = next(self.adapter.model.parameters())
        totals: Line = {"images": 0, "wrong": 0}
        for batch in self.clean:
            if batch.labels is None:
                raise UsageError("The metric 'forgetting' needs labels, but the stream has none. Omit it from metrics.")
            inputs = to_device(batch.images.to(weight.dtype), weight.device)
            given = self.adapter.inputs.from_unit(inputs, self.adapter.model)
            logits = self.adapter.predict(given, **({} if self.adapter.ranks is None else {"whole": True}))
            counts = {"images": len(inputs), **compare(logits, batch.labels, self.ignore_index)}
            for name in ("images", "wrong", *(["pixels"] if "pixels" in counts else [])):
                totals[name] = totals.get(name, 0) + counts[name]
        return totals


def confidence_bins(logits: Tensor, labels: Tensor) -> dict[str, list[Any]]:
    """Return a histogram of confidence, from which the expected calibration error is computed.

    The confidence c of a prediction is its largest probability. Its bin is the k with k/15 < c <= (k+1)/15.

    Args:
        logits: (n, classes). A prediction with NaN or infinity counts as wrong, with NaN also with confidence 0.
        labels: (n,), on any device.

    Returns:
        One number per bin: ``count``, ``confidence`` (sum of confidences) and ``correct`` (correct predictions).

    >>> histogram = confidence_bins(torch.tensor([[9.0, 0.0], [0.0, 0.1]]), torch.tensor([0, 0]))
    >>> histogram["count"][7], histogram["count"][14], histogram["correct"][14]
    (1, 1, 1)
    """
    largest, predictions = logits.detach().float().softmax(1).max(1)
    is_correct = (predictions == labels.to(predictions.device)) & logits.amax(1).isfinite()
    confidence, correct = torch.stack([largest, is_correct.to(largest.dtype)]).cpu().double().numpy()
    confidence = np.nan_to_num(confidence, nan=0.0)
    bins = np.clip(np.ceil(confidence * BINS).astype(int) - 1, 0, BINS - 1)
    sums = np.bincount(bins, weights=confidence, minlength=BINS)
    return {
        "count": np.bincount(bins, minlength=BINS).tolist(),
        "confidence": [round(value, 5) for value in sums.tolist()],
        "correct": np.bincount(bins, weights=correct, minlength=BINS).astype(int).tolist(),
    }
