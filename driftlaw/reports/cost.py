"""What a step costs, from records: milliseconds, FLOPs in forward passes and peak memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from driftlaw.records import RunRecord
from driftlaw.reports.protocol import device_name
from driftlaw.reports.tables import Row


@dataclass(frozen=True)
class Cost:
    """The cost of one row's steps; None where its records do not say.

    Attributes:
        seconds: a step, the benchmark's where the row has one; else the median over steps and then over seeds, of
            runs that had their GPU to themselves.
        forward_flops: one image through one forward pass of the network, 2 × its multiply-adds.
        step_flops: one image through a whole step, forward and backward, as measured.
        peak_bytes: the largest peak over seeds.
        device: where the runs were made.
    """

    seconds: float | None
    forward_flops: float | None
    step_flops: float | None
    peak_bytes: float | None
    device: str

    @property
    def forward_cost(self) -> float | None:
        """How many forward passes a step is worth."""
        return self.step_flops / self.forward_flops if self.step_flops and self.forward_flops else None


def cost_of(row: Row) -> Cost:
    """Return what the steps of a row's runs cost."""
    own = [record.seconds_per_step for record in row.records if record.batches and not record.shared_gpu]
    return Cost(
        seconds=row.seconds if row.benched else _middle(own),
        forward_flops=_middle(_told(row.records, "forward_flops_per_image")),
        step_flops=_middle(_told(row.records, "step_flops_per_image")),
        peak_bytes=max(_peaks(row.records), default=None),
        device=", ".join(sorted({device_name(record) for record in row.records})),
    )


def _middle(values: Sequence[float]) -> float | None:
    return float(median(values)) if values else None


def _told(records: Sequence[RunRecord], name: str) -> list[float]:
    return [float(value) for record in records if (value := _flops(record).get(name)) is not None]


def _flops(record: RunRecord) -> dict[str, Any]:
    """The closing line's account, else that of the first batch, which an unfinished run has too."""
    lines = [record.closing or {}, *record.batches[:1]]
    return next((line["cost"] for line in lines if line.get("cost")), {})


def _peaks(records: Sequence[RunRecord]) -> list[float]:
    timings = [(record.closing or {}).get("timing", {}) for record in records]
    return [float(timing["peak_bytes"]) for timing in timings if timing.get("peak_bytes")]
