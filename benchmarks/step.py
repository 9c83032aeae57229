"""Time and peak memory of a step: methods × models × batch sizes, compared with the baselines in one run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.cases import BenchCase, BenchPlan
from benchmarks.memory import MEMORY_PROTOCOLS, measure_peak, with_shares
from benchmarks.targets import FORWARD, LEARNING_RATE, NAIVE_LAW, NAIVE_TENT
from benchmarks.timing import ProgressCallback, Repetitions, clock_name, no_progress, spread, time_variants
from driftlaw.hardware import load_average

_RATIOS = {
    NAIVE_LAW: "times_faster_than_plain_law",
    NAIVE_TENT: "times_faster_than_plain_tent",
    FORWARD: "times_faster_than_forward",
}


def measure_steps(
    plan: BenchPlan, repetitions: Repetitions, *, memory: bool = True, on_progress: ProgressCallback = no_progress
) -> dict[str, Any]:
    """Time a step of every variant on every model and batch size, interleaved, and measure its peak memory alone.

    Args:
        plan: variants, models, batch sizes and device.
        repetitions: rounds, steps per round and warm-up steps.
        memory: also measure peak memory.
        on_progress: called with the label of a variant after each of its rounds.

    Returns:
        A record: ``rows`` with one entry per model, batch size and variant (milliseconds per step, and speedup over the
        baselines), how it was measured, and the device.
    """
    rows = []
    for case in plan.cases():
        timed = [
            {**case.info(), **variant.info(), "milliseconds": spread(times), "milliseconds_by_round": times}
            for variant, times in zip(
                plan.supported, time_variants(case, repetitions, on_progress=on_progress), strict=True
            )
        ]
        rows += with_ratios(_with_peaks(case, timed) if memory else timed)
    protocol = {
        **repetitions.info(),
        "learning_rate": LEARNING_RATE,
        "deterministic": plan.deterministic,
        "images": "random" if plan.pool is None else "real",
        "clock": clock_name(plan.device),
        "load_average": load_average(),
        "memory_measured": MEMORY_PROTOCOLS[plan.device.type] if memory else None,
    }
    return plan.record("step", protocol, rows=rows)


def _with_peaks(case: BenchCase, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return with_shares(
        [row | measure_peak(case, variant) for row, variant in zip(rows, case.plan.supported, strict=True)]
    )


def with_ratios(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of one model and batch size, each with its speedup over the baselines."""
    medians = {row["method"]: row["milliseconds"]["median"] for row in rows if row["method"] in _RATIOS}
    return [
        row
        | {
            name: medians[method] / row["milliseconds"]["median"] if method in medians else None
            for method, name in _RATIOS.items()
        }
        for row in rows
    ]
