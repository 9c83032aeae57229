"""Overhead of recording all diagnostics of every step: the same steps with and without them, interleaved."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

from torch import Tensor

from benchmarks.cases import BenchCase, BenchPlan
from benchmarks.targets import Step, Variant
from benchmarks.timing import (
    ProgressCallback,
    Repetitions,
    clock_name,
    cudnn_kernels,
    measure_interleaved,
    no_progress,
    spread,
)
from driftlaw.evaluation import diagnostics_to_json
from driftlaw.records import dump_line


def diagnostics_overhead(
    plan: BenchPlan, repetitions: Repetitions, *, on_progress: ProgressCallback = no_progress
) -> dict[str, Any]:
    """Time steps that write a record line, without and with the method's diagnostics.

    Both copy the predictions to the host and format a line, as a run does; one of them also formats the diagnostics.
    ``cost`` is the median over rounds of the ratio of their times, minus 1. Baselines have no diagnostics and are
    skipped.

    Returns:
        A record: ``rows`` with one entry per model, batch size and variant, how it was measured, and the device.
    """
    plan = replace(plan, variants=[variant for variant in plan.variants if variant.is_adapter])
    rows = [_measure(case, variant, repetitions, on_progress) for case in plan.cases() for variant in plan.supported]
    protocol = {**repetitions.info(), "deterministic": plan.deterministic, "clock": clock_name(plan.device)}
    return plan.record("facts", protocol, rows=rows)


def _measure(
    case: BenchCase, variant: Variant, repetitions: Repetitions, on_progress: ProgressCallback
) -> dict[str, Any]:
    targets = [case.target(variant) for _ in range(2)]
    steps = [_RecordedStep(target.step, include) for target, include in zip(targets, (False, True), strict=True)]
    for target, step in zip(targets, steps, strict=True):
        target.step = step
    with cudnn_kernels(case.plan.deterministic):
        without, including = measure_interleaved(targets, repetitions, on_progress=on_progress)
    return {
        **case.info(),
        **variant.info(),
        "numbers": steps[1].numbers,
        "without": spread(without),
        "with": spread(including),
        "cost": statistics.median(b / a for a, b in zip(without, including, strict=True)) - 1,
    }


class _RecordedStep:
    """A step that formats a record line, with or without diagnostics.

    Attributes:
        numbers: number of values in the diagnostics of a step.
    """

    def __init__(self, step: Step, include: bool) -> None:
        self.numbers = 0
        self._step, self._include = step, include

    def __call__(self, images: Tensor) -> bytes:
        output = self._step(images)
        wrong = int((output.logits.argmax(1) != 0).sum())
        diagnostics = diagnostics_to_json(output.diagnostics) if self._include else {}
        self.numbers = sum(len(value) if isinstance(value, list) else 1 for value in diagnostics.values())
        return dump_line({"images": len(images), "wrong": wrong, "facts": diagnostics})
