"""Time and memory of a step as a function of batch size, depth, width, number of tensors and stream length."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.cases import BenchCase, BenchPlan
from benchmarks.memory import MEMORY_PROTOCOLS, measure_peak, with_shares
from benchmarks.models import make_models
from benchmarks.step import with_ratios
from benchmarks.targets import Variant
from benchmarks.timing import (
    ProgressCallback,
    Repetitions,
    clock_name,
    cudnn_kernels,
    milliseconds_per_step,
    no_progress,
    spread,
    time_variants,
)
from driftlaw.errors import unknown_name
from driftlaw.profiling import peak_bytes

STREAM = "stream"


@dataclass(frozen=True)
class Axis:
    """One quantity that grows while the others are fixed.

    Attributes:
        name: the quantity.
        points: (value, model name, batch size) in increasing order.
        side: height and width of the images.
        note: remark for readers.
    """

    name: str
    points: Sequence[tuple[int, str, int]]
    side: int = 32
    note: str = ""


@dataclass(frozen=True)
class Ranges:
    """Range of each axis. The defaults suit a GPU."""

    batch_size: int = 200
    model: str = "wrn_40_2"
    batch_sizes: Sequence[int] = (8, 16, 32, 64, 128, 200, 400)
    depths: Sequence[int] = (10, 16, 22, 28, 40, 64)
    depth_width: int = 2
    widths: Sequence[int] = (1, 2, 4, 8, 10)
    width_depth: int = 28
    tensor_depths: Sequence[int] = (10, 16, 28, 40, 64, 100)
    side: int = 32
    tensor_side: int = 8
    tensor_batch_size: int = 8


def make_axes(ranges: Ranges) -> dict[str, Axis]:
    """Return the axes by name, without ``stream``, which is not a sequence of models and batch sizes."""
    size = ranges.batch_size
    return {
        "batch_size": Axis(
            "batch_size",
            [(value, ranges.model, value) for value in ranges.batch_sizes],
            ranges.side,
            f"model {ranges.model}",
        ),
        "depth": Axis(
            "depth", [(value, f"wrn_{value}_{ranges.depth_width}", size) for value in ranges.depths], ranges.side
        ),
        "width": Axis(
            "width", [(value, f"wrn_{ranges.width_depth}_{value}", size) for value in ranges.widths], ranges.side
        ),
        "tensors": Axis(
            "tensors",
            [(_count_tensors(depth), f"wrn_{depth}_1", ranges.tensor_batch_size) for depth in ranges.tensor_depths],
            ranges.tensor_side,
            "few and small images, so that the cost per tensor dominates",
        ),
    }


def _count_tensors(depth: int) -> int:
    with torch.device("meta"):
        (model,) = make_models([f"wrn_{depth}_1"])
    return model.tensors


def list_axes() -> list[str]:
    """Return the names of all axes."""
    return [*make_axes(Ranges(tensor_depths=())), STREAM]


def measure_scaling(
    axes: Iterable[str],
    plan: BenchPlan,
    repetitions: Repetitions,
    *,
    ranges: Ranges | None = None,
    batches: int = 10_000,
    windows: int = 20,
    on_progress: ProgressCallback = no_progress,
) -> dict[str, Any]:
    """Time a step and measure its peak memory along each axis.

    Args:
        axes: names from ``list_axes()``.
        plan: variants and device; the axes define models and batch sizes.
        repetitions: rounds, steps per round and warm-up steps at every point.
        ranges: range of each axis.
        batches: length of the stream for the axis ``stream``.
        windows: number of windows that the stream is divided into.
        on_progress: called with a description of every finished point.

    Returns:
        A record: ``axes``, each with its rows; ``stream``, each variant with time and memory per window; the device.
    """
    names, ranges = list(axes), ranges or Ranges()
    for name in names:
        if name not in list_axes():
            raise unknown_name("axis", name, list_axes())
    known, streams = make_axes(ranges), []
    curves = [_measure_axis(known[name], plan, repetitions, on_progress) for name in names if name != STREAM]
    if STREAM in names:
        case = _case(plan, ranges.model, ranges.side, ranges.batch_size)
        adapters = [variant for variant in plan.supported if variant.is_adapter]
        with cudnn_kernels(plan.deterministic):
            streams = [
                measure_stream(case, variant, batches=batches, windows=windows, on_progress=on_progress)
                for variant in adapters
            ]
    protocol = {
        **repetitions.info(),
        "deterministic": plan.deterministic,
        "clock": clock_name(plan.device),
        "memory_measured": MEMORY_PROTOCOLS[plan.device.type],
    }
    return plan.record("scaling", protocol, axes=curves, stream=streams)


def _case(plan: BenchPlan, model: str, side: int, batch_size: int) -> BenchCase:
    (built,) = make_models([model], seed=plan.seed, side=side)
    return BenchCase(plan, built, batch_size)


def _measure_axis(
    axis: Axis, plan: BenchPlan, repetitions: Repetitions, on_progress: ProgressCallback
) -> dict[str, Any]:
    rows = []
    for value, model, batch_size in axis.points:
        case = _case(plan, model, axis.side, batch_size)
        measured = [
            {
                **case.info(),
                "label": variant.label,
                "method": variant.method,
                "milliseconds": spread(times),
                **measure_peak(case, variant),
            }
            for variant, times in zip(plan.supported, time_variants(case, repetitions), strict=True)
        ]
        rows += [{"value": value, **row} for row in with_ratios(with_shares(measured))]
        on_progress(f"{axis.name} {value}")
    return {"axis": axis.name, "note": axis.note, "rows": rows}


def measure_stream(
    case: BenchCase, variant: Variant, *, batches: int, windows: int, on_progress: ProgressCallback = no_progress
) -> dict[str, Any]:
    """Run ``batches`` steps and return time and memory of every window of them.

    Time is the median over groups of a few steps within a window. Memory is what is held at the end of the window (live
    bytes of the allocator on a GPU, resident set of the process on a CPU), and the peak so far. ``growth`` compares the
    last window with the second, because the first includes one-time work.
    """
    target, device = case.target(variant), case.plan.device
    group = target.whole_cycles(10 if device.type == "cuda" else 1)  # a GPU's queue must not run empty
    groups = max(1, batches // windows // group)
    rows = []
    for number in range(windows):
        times = [milliseconds_per_step(target, group) for _ in range(groups)]
        rows.append(
            {
                "batches": (number + 1) * groups * group,
                "milliseconds": spread(times),
                "held_bytes": _held_bytes(device),
                "peak_bytes": peak_bytes(device),
            }
        )
        on_progress(f"{variant.label}, batch {rows[-1]['batches']}")
    return {**case.info(), **variant.info(), "windows": rows, "growth": growth(rows)}


def growth(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return the growth of time and memory along the windows of a stream, as ratios."""
    early, late = rows[min(1, len(rows) - 1)], rows[-1]
    medians = [row["milliseconds"]["median"] for row in rows[1:] or rows]
    return {
        "milliseconds": late["milliseconds"]["median"] / early["milliseconds"]["median"],
        "milliseconds_halves": statistics.median(medians[len(medians) // 2 :])
        / statistics.median(medians[: max(1, len(medians) // 2)]),
        "held_bytes": late["held_bytes"] / max(1, early["held_bytes"]),
    }


def _held_bytes(device: torch.device) -> int:
    """Return the bytes held now: live tensors on a GPU, resident set of the process on a CPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        return torch.cuda.memory_allocated(device)
    status = Path("/proc/self/status")
    if not status.exists():
        return peak_bytes(device)
    lines = status.read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
