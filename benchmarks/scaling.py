"""Milliseconds and megabytes of a step against batch size, depth, width, number of tensors and stream length."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.cases import Cell, Plan
from benchmarks.memory import WAYS, peak_of, with_shares
from benchmarks.models import make_networks
from benchmarks.step import with_ratios
from benchmarks.timing import Pace, Told, clock_of, kernels, milliseconds, silent, spread, time_variants
from benchmarks.variants import Variant
from driftlaw.errors import unknown
from driftlaw.profiling import peak_bytes

STREAM = "stream"


@dataclass(frozen=True)
class Axis:
    """One thing that grows while the rest stands still.

    Attributes:
        name: what grows.
        points: (value, network, batch size), growing.
        side: of the images.
        note: what a reader must know.
    """

    name: str
    points: Sequence[tuple[int, str, int]]
    side: int = 32
    note: str = ""


@dataclass(frozen=True)
class Ranges:
    """How far each axis goes; the defaults suit a GPU, a CPU may want less."""

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
    """Return the axes by name, the stream's length left out: it is no cell of network and batch size."""
    size = ranges.batch_size
    return {
        "batch_size": Axis(
            "batch_size",
            [(value, ranges.model, value) for value in ranges.batch_sizes],
            ranges.side,
            f"network {ranges.model}",
        ),
        "depth": Axis(
            "depth", [(value, f"wrn_{value}_{ranges.depth_width}", size) for value in ranges.depths], ranges.side
        ),
        "width": Axis(
            "width", [(value, f"wrn_{ranges.width_depth}_{value}", size) for value in ranges.widths], ranges.side
        ),
        "tensors": Axis(
            "tensors",
            [(_tensors(depth), f"wrn_{depth}_1", ranges.tensor_batch_size) for depth in ranges.tensor_depths],
            ranges.tensor_side,
            "few and tiny images: what is left is the cost of a tensor",
        ),
    }


def _tensors(depth: int) -> int:
    with torch.device("meta"):
        (network,) = make_networks([f"wrn_{depth}_1"])
    return network.tensors


def measure_scaling(
    axes: Iterable[str],
    plan: Plan,
    pace: Pace,
    *,
    ranges: Ranges | None = None,
    batches: int = 10_000,
    windows: int = 20,
    told: Told = silent,
) -> dict[str, Any]:
    """Time a step and measure its peak memory along each axis.

    Args:
        axes: names of ``list_axes()``.
        plan: what to measure and where; its networks and batch sizes are passed over, an axis brings its own.
        pace: how often, at every point.
        ranges: how far the axes go.
        batches: length of the stream, for the axis ``stream``.
        windows: into how many windows it is cut.
        told: is handed a line about every point that is done.

    Returns:
        Plain data: ``axes``, each with its rows; ``stream``, each variant with time and memory a window; and where.
    """
    wanted, ranges = list(axes), ranges or Ranges()
    for name in wanted:
        if name not in list_axes():
            raise unknown("axis", name, list_axes())
    known, long = make_axes(ranges), []
    curves = [_along(known[name], plan, pace, told) for name in wanted if name != STREAM]
    if STREAM in wanted:
        cell = _cell(plan, ranges.model, ranges.side, ranges.batch_size)
        ours = [variant for variant in plan.fit if variant.is_ours]
        with kernels(plan.deterministic):
            long = [along_stream(cell, variant, batches=batches, windows=windows, told=told) for variant in ours]
    how = {
        **pace.facts(),
        "deterministic": plan.deterministic,
        "clock": clock_of(plan.device),
        "memory_measured": WAYS[plan.device.type],
    }
    return plan.record("scaling", how, axes=curves, stream=long)


def list_axes() -> list[str]:
    """Return the names of all axes."""
    return [*make_axes(Ranges(tensor_depths=())), STREAM]


def _cell(plan: Plan, model: str, side: int, batch_size: int) -> Cell:
    (network,) = make_networks([model], seed=plan.seed, side=side)
    return Cell(plan, network, batch_size)


def _along(axis: Axis, plan: Plan, pace: Pace, told: Told) -> dict[str, Any]:
    rows = []
    for value, model, batch_size in axis.points:
        rows += [{"value": value, **row} for row in _measure(_cell(plan, model, axis.side, batch_size), pace)]
        told(f"{axis.name} {value}")
    return {"axis": axis.name, "note": axis.note, "rows": rows}


def _measure(cell: Cell, pace: Pace) -> list[dict[str, Any]]:
    rows = [
        {
            **cell.facts(),
            "label": variant.label,
            "method": variant.method,
            "milliseconds": spread(numbers),
            **peak_of(cell, variant),
        }
        for variant, numbers in zip(cell.plan.fit, time_variants(cell, pace), strict=True)
    ]
    return with_ratios(with_shares(rows))


def along_stream(cell: Cell, variant: Variant, *, batches: int, windows: int, told: Told = silent) -> dict[str, Any]:
    """Take ``batches`` steps in one go and return time and memory of every window of them.

    Time is the median over stretches of a few steps inside a window. Memory is what is held when the window
    ends (on a GPU the allocator's live bytes, on a CPU the process's resident pages) and the highest point so far.
    ``growth`` is the last window against the second: the first holds what is done once.
    """
    contender, device = cell.contender(variant), cell.plan.device
    stretch = contender.whole_cycles(10 if device.type == "cuda" else 1)  # a GPU's queue must not run empty
    stretches = max(1, batches // windows // stretch)
    rows = []
    for number in range(windows):
        taken = [milliseconds(contender, stretch) for _ in range(stretches)]
        rows.append(
            {
                "batches": (number + 1) * stretches * stretch,
                "milliseconds": spread(taken),
                "held_bytes": _held(device),
                "peak_bytes": peak_bytes(device),
            }
        )
        told(f"{variant.label}, batch {rows[-1]['batches']}")
    return {**cell.facts(), **variant.facts(), "windows": rows, "growth": _growth(rows)}


def _growth(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    early, late = rows[min(1, len(rows) - 1)], rows[-1]
    medians = [row["milliseconds"]["median"] for row in rows[1:] or rows]
    return {
        "milliseconds": late["milliseconds"]["median"] / early["milliseconds"]["median"],
        "milliseconds_halves": statistics.median(medians[len(medians) // 2 :])
        / statistics.median(medians[: max(1, len(medians) // 2)]),
        "held_bytes": late["held_bytes"] / max(1, early["held_bytes"]),
    }


def _held(device: torch.device) -> int:
    """Return the bytes held now: live tensors on a GPU, resident pages of the process on a CPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        return torch.cuda.memory_allocated(device)
    statistics_file = Path("/proc/self/status")
    if not statistics_file.exists():
        return peak_bytes(device)
    lines = statistics_file.read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
