"""Milliseconds and megabytes of a step against batch size, depth, width, number of tensors and stream length."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from driftlaw.bench.memory import WAYS, peak_of, with_shares
from driftlaw.bench.networks import Network, make_networks
from driftlaw.bench.step import with_ratios
from driftlaw.bench.timing import Told, clock_of, kernels, milliseconds, silent, spread, take_turns
from driftlaw.bench.variants import Contender, Variant, sort_out
from driftlaw.errors import unknown
from driftlaw.probes import environment, peak_bytes

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
    *,
    variants: Iterable[Variant],
    device: torch.device,
    rounds: int,
    steps: int,
    warm_up: int,
    ranges: Ranges | None = None,
    batches: int = 10_000,
    windows: int = 20,
    seed: int = 0,
    deterministic: bool = False,
    told: Told = silent,
) -> dict[str, Any]:
    """Time a step and measure its peak memory along each axis.

    Args:
        axes: names of ``list_axes()``.
        variants: what to measure; those that cannot be are named in the record.
        device: where.
        rounds: how many times each variant has its turn at every point.
        steps: at least so many steps a turn.
        warm_up: steps before the first turn.
        ranges: how far the axes go.
        batches: length of the stream, for the axis ``stream``.
        windows: into how many windows it is cut.
        seed: of networks, images and augmentation.
        deterministic: take the kernels of ``driftlaw run`` instead of the fastest.
        told: is handed a line about every point that is done.

    Returns:
        Plain data: ``axes``, each with its rows; ``stream``, each variant with time and memory a window; and where.
    """
    wanted, ranges = list(axes), ranges or Ranges()
    for name in wanted:
        if name not in list_axes():
            raise unknown("axis", name, list_axes())
    fit, left_out = sort_out(variants)
    known, curves = make_axes(ranges), []
    for name in (name for name in wanted if name != STREAM):
        rows = []
        for value, model, batch_size in known[name].points:
            (network,) = make_networks([model], seed=seed, side=known[name].side)
            cell = _cell(fit, network, batch_size, device, rounds, steps, warm_up, seed, deterministic)
            rows += [{"value": value, **row} for row in cell]
            told(f"{name} {value}")
        curves.append({"axis": name, "note": known[name].note, "rows": rows})
    long = []
    if STREAM in wanted:
        (network,) = make_networks([ranges.model], seed=seed, side=ranges.side)
        for variant in (variant for variant in fit if variant.is_ours):
            with kernels(deterministic):
                long.append(along_stream(variant, network, ranges.batch_size, batches, windows, device, seed, told))
    return {
        "bench": "scaling",
        "seed": seed,
        "rounds": rounds,
        "steps_per_round": steps,
        "warm_up": warm_up,
        "deterministic": deterministic,
        "clock": clock_of(device),
        "memory_measured": WAYS[device.type],
        "left_out": left_out,
        "axes": curves,
        "stream": long,
        **environment(device),
    }


def list_axes() -> list[str]:
    """Return the names of all axes."""
    return [*make_axes(Ranges(tensor_depths=())), STREAM]


def _cell(
    variants: Sequence[Variant],
    network: Network,
    batch_size: int,
    device: torch.device,
    rounds: int,
    steps: int,
    warm_up: int,
    seed: int,
    deterministic: bool,
) -> list[dict[str, Any]]:
    with kernels(deterministic):
        contenders = [Contender(variant, network, batch_size, device=device, seed=seed) for variant in variants]
        taken = take_turns(contenders, rounds=rounds, steps=steps, warm_up=warm_up)
    del contenders
    gc.collect()
    cell = [
        {
            **network.facts(),
            "batch_size": batch_size,
            "label": variant.label,
            "method": variant.method,
            "milliseconds": spread(numbers),
            **peak_of(variant, network, batch_size, device=device, seed=seed, deterministic=deterministic),
        }
        for variant, numbers in zip(variants, taken, strict=True)
    ]
    return with_ratios(with_shares(cell))


def along_stream(
    variant: Variant,
    network: Network,
    batch_size: int,
    batches: int,
    windows: int,
    device: torch.device,
    seed: int = 0,
    told: Told = silent,
) -> dict[str, Any]:
    """Take ``batches`` steps in one go and return time and memory of every window of them.

    Time is the median over stretches of a few steps inside a window. Memory is what is held when the window
    ends (on a GPU the allocator's live bytes, on a CPU the process's resident pages) and the highest point so far.
    ``growth`` is the last window against the second: the first holds what is done once.
    """
    contender = Contender(variant, network, batch_size, device=device, seed=seed)
    stretch = contender.whole_cycles(10 if device.type == "cuda" else 1)  # a GPU's queue must not run empty
    length = max(1, batches // windows)
    rows = []
    for number in range(windows):
        taken = [milliseconds(contender, stretch) for _ in range(max(1, length // stretch))]
        rows.append(
            {
                "batches": (number + 1) * max(1, length // stretch) * stretch,
                "milliseconds": spread(taken),
                "held_bytes": _held(device),
                "peak_bytes": peak_bytes(device),
            }
        )
        told(f"{variant.label}, batch {rows[-1]['batches']}")
    return {
        **network.facts(),
        "batch_size": batch_size,
        **variant.facts(),
        "windows": rows,
        "growth": _growth(rows),
    }


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
