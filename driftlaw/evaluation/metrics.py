"""What a run can measure beside its error: calibration, forgetting and drift, each only where it is asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from driftlaw.base import Adapter, Batch, Stream
from driftlaw.errors import UsageError, unknown
from driftlaw.profiling import as_input

MEASURES = ("calibration", "forgetting", "drift")
BINS = 15  # of equal width, as Guo et al. (ICML 2017) and most who followed count
CLEAN_IMAGES = 2000  # at most; a rate of 6 % is then known to half a point

Line = dict[str, Any]


class Measures:
    """What is to be measured of one run; with no names it measures nothing, and costs nothing.

    Args:
        names: some of ``MEASURES``.
        stream: what is answered; it knows the clean images that forgetting is measured on.
        adapter: what answers, before its first step.
    """

    def __init__(self, names: Collection[str], stream: Stream, adapter: Adapter) -> None:
        for name in names:
            if name not in MEASURES:
                raise unknown("measure", name, MEASURES)
        self.names = tuple(name for name in MEASURES if name in names)
        self.adapter = adapter
        self.clean = _clean_images(stream) if "forgetting" in self.names else ()
        self.source = _learnable(adapter) if "drift" in self.names else {}

    def header(self) -> Line:
        """Return what a record's header says of the measures: nothing where there are none."""
        told: dict[str, Line] = {
            "calibration": {"bins": BINS},
            "forgetting": {"at_most": CLEAN_IMAGES},
            "drift": {"tensors": list(self.source)},
        }
        return {"measures": {name: told[name] for name in self.names}} if self.names else {}

    def of_answers(self, logits: Tensor, labels: Tensor) -> Line:
        """Return what a batch's line says of its answers."""
        return {"calibration": confidence_bins(logits, labels)} if "calibration" in self.names else {}

    def with_ends(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, bool]]:
        """Yield each batch, and whether it ends its domain; only where drift is asked for, the next one is made first.

        Elsewhere nobody asks, and the answer is False.
        """
        if "drift" not in self.names:
            yield from ((batch, False) for batch in batches)
            return
        last = None
        for batch in batches:
            if last is not None:
                yield last, batch.starts_domain
            last = batch
        if last is not None:
            yield last, True

    def of_domain(self, *, ended: bool) -> Line:
        """Return what the line that ends a domain says: how far every tensor is from the source."""
        return {"drift": relative_distances(self.source, _parameters(self.adapter))} if ended else {}

    def before_stream(self) -> Line:
        """Return what the first line says of clean images, answered before anything was learned."""
        return {"clean": self._clean_answers()} if "forgetting" in self.names else {}

    def after_stream(self, first: Line) -> Line:
        """Return what the closing line says of clean images, beside what the first line said."""
        if "forgetting" not in self.names:
            return {}
        after = self._clean_answers()
        return {
            "clean": {
                "images": after["images"],
                "wrong_before": first["clean"]["wrong"],
                "wrong_after": after["wrong"],
            }
        }

    def _clean_answers(self) -> Line:
        """Answer the clean images and learn nothing from them."""
        own = next(self.adapter.model.parameters())
        images, wrong = 0, torch.zeros((), dtype=torch.int64, device=own.device)
        for batch in self.clean:
            assert batch.labels is not None
            answers = self.adapter.predict(as_input(batch.images.to(own.dtype), own.device))
            wrong += (answers.argmax(1) != batch.labels.to(own.device)).sum()
            images += len(batch.images)
        return {"images": images, "wrong": int(wrong)}


def confidence_bins(logits: Tensor, labels: Tensor) -> dict[str, list[Any]]:
    """Return, for each of ``BINS`` intervals of confidence, how many answers fall into it.

    An answer's confidence is its largest probability c, and its bin is the k with c in (k/15, (k+1)/15].

    Args:
        logits: (n, classes); an answer that is no number counts with confidence 0.
        labels: (n,), on any device.

    Returns:
        ``count``, ``confidence`` (their sum) and ``correct`` (how many are right), a number a bin each.
    """
    largest, answers = logits.detach().float().softmax(1).max(1)
    right = answers == labels.to(answers.device)
    confidence, correct = torch.stack([largest, right.to(largest.dtype)]).cpu().double().numpy()
    confidence = np.nan_to_num(confidence, nan=0.0)
    bins = np.clip(np.ceil(confidence * BINS).astype(int) - 1, 0, BINS - 1)
    sums = np.bincount(bins, weights=confidence, minlength=BINS)
    return {
        "count": np.bincount(bins, minlength=BINS).tolist(),
        "confidence": [round(value, 5) for value in sums.tolist()],
        "correct": np.bincount(bins, weights=correct, minlength=BINS).astype(int).tolist(),
    }


def relative_distances(source: dict[str, Tensor], now: dict[str, Tensor]) -> list[float | None]:
    """Return ‖θ − θ₀‖ / ‖θ₀‖ of every tensor of ``source``; None where θ₀ is zero or the distance is no number."""
    if not source:
        return []
    origins = [value.double().norm() for value in source.values()]
    moved = [(now[name].detach().double() - value.double()).norm() for name, value in source.items()]
    return [_digits(value) for value in (torch.stack(moved) / torch.stack(origins)).tolist()]


def _digits(value: float) -> float | None:
    return float(f"{value:.6g}") if np.isfinite(value) else None


def _parameters(adapter: Adapter) -> dict[str, Tensor]:
    return dict(adapter.model.named_parameters())


def _learnable(adapter: Adapter) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in _parameters(adapter).items() if value.requires_grad}


def _clean_images(stream: Stream) -> Any:
    if not hasattr(stream, "clean"):
        raise UsageError(
            f"forgetting is measured on the clean images of a stream, and {type(stream).__name__} has none: give it a "
            "method clean(limit) that returns a stream of them, or leave the measure out"
        )
    return stream.clean(CLEAN_IMAGES)
