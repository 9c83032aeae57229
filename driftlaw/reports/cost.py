"""Cost of a step from records: milliseconds, FLOPs in forward passes, and peak memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from driftlaw.records import RunRecord
from driftlaw.reports.protocol import device_name


@dataclass(frozen=True)
class Cost:
    """Cost per step; a value that the records do not contain is None.

    Attributes:
        seconds: Seconds per step: median over steps, then over seeds, without runs that shared their GPU.
        forward_flops: FLOPs per image of one forward pass of the model, 2 × its multiply-adds.
        step_flops: Measured FLOPs per image of a whole step, forward and backward.
        peak_bytes: Largest peak memory over seeds.
        device: Devices of the runs.
    """

    seconds: float | None
    forward_flops: float | None
    step_flops: float | None
    peak_bytes: float | None
    device: str

    @property
    def forward_passes(self) -> float | None:
        """Cost of a step in forward passes."""
        return self.step_flops / self.forward_flops if self.step_flops and self.forward_flops else None


def cost_of(records: Sequence[RunRecord]) -> Cost:
    """Return the cost per step of runs of one method."""
    costs = [record.cost for record in records]
    peaks = [record.timing.get("peak_bytes") for record in records]
    return Cost(
        seconds=_median([record.seconds_per_step for record in records if record.batches and not record.shared_gpu]),
        forward_flops=_median([cost.get("forward_flops_per_image") for cost in costs]),
        step_flops=_median([cost.get("step_flops_per_image") for cost in costs]),
        peak_bytes=max((float(peak) for peak in peaks if peak), default=None),
        device=", ".join(sorted({device_name(record) for record in records})),
    )


def _median(values: Sequence[float | None]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return median(known) if known else None
