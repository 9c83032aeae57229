"""What a step costs: methods × networks × batch sizes beside a forward pass and the plain references, in one run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.cases import Cell, Plan
from benchmarks.memory import WAYS, peak_of, with_shares
from benchmarks.timing import Pace, Told, clock_of, silent, spread, time_variants
from benchmarks.variants import FORWARD, PLAIN_LAW, PLAIN_TENT, RATE


def compare_steps(plan: Plan, pace: Pace, *, memory: bool = True, told: Told = silent) -> dict[str, Any]:
    """Time a step of every variant on every network and batch size, in turns, and measure its peak memory alone.

    Args:
        plan: what to measure, on what and where.
        pace: how often.
        memory: whether to measure peak memory too.
        told: is handed the label of every variant after every turn.

    Returns:
        Plain data: ``rows`` with one entry a network, batch size and variant (milliseconds a step, and how many times
        faster than the plain references), how it was measured, and where.
    """
    rows = []
    for cell in plan.cells():
        timed = _time(cell, pace, told)
        rows += with_ratios(_with_peaks(cell, timed) if memory else timed)
    how = {
        **pace.facts(),
        "learning_rate": RATE,
        "deterministic": plan.deterministic,
        "images": "random" if plan.pool is None else "real",
        "clock": clock_of(plan.device),
        "memory_measured": WAYS[plan.device.type] if memory else None,
    }
    return plan.record("step", how, rows=rows)


def _time(cell: Cell, pace: Pace, told: Told) -> list[dict[str, Any]]:
    return [
        {**cell.facts(), **variant.facts(), "milliseconds": spread(numbers), "milliseconds_by_round": numbers}
        for variant, numbers in zip(cell.plan.fit, time_variants(cell, pace, told=told), strict=True)
    ]


def _with_peaks(cell: Cell, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return with_shares([row | peak_of(cell, variant) for row, variant in zip(rows, cell.plan.fit, strict=True)])


def with_ratios(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of one network and batch size, each with how many times faster it is than the references."""
    medians = {row["method"]: row["milliseconds"]["median"] for row in rows if row["method"] in _RATIOS}
    return [
        row
        | {
            name: medians[method] / row["milliseconds"]["median"] if method in medians else None
            for method, name in _RATIOS.items()
        }
        for row in rows
    ]


_RATIOS = {
    PLAIN_LAW: "times_faster_than_plain_law",
    PLAIN_TENT: "times_faster_than_plain_tent",
    FORWARD: "times_faster_than_forward",
}
