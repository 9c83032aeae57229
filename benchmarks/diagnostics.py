"""What it costs to record all facts of every step: the same steps with and without them, in turns."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

from torch import Tensor

from benchmarks.cases import Cell, Plan
from benchmarks.timing import Pace, Told, clock_of, kernels, silent, spread, take_turns
from benchmarks.variants import Step, Variant
from driftlaw.evaluation import diagnostics_to_json
from driftlaw.records.jsonl import dump_line


def compare_facts(plan: Plan, pace: Pace, *, told: Told = silent) -> dict[str, Any]:
    """Time steps whose answers go into a record's line, without the method's facts and with them.

    Both move the answer to the host and write a line, as a run does; one of them writes the facts into it too. The cost
    is the median over rounds of their ratio, less 1. The arguments are those of ``compare_steps``; variants that are
    not ours have no facts and are passed over.

    Returns:
        Plain data: ``rows`` with one entry a network, batch size and variant, how it was measured, and where.
    """
    plan = replace(plan, variants=[variant for variant in plan.variants if variant.is_ours])
    rows = [_row(cell, variant, pace, told) for cell in plan.cells() for variant in plan.fit]
    how = {**pace.facts(), "deterministic": plan.deterministic, "clock": clock_of(plan.device)}
    return plan.record("facts", how, rows=rows)


def _row(cell: Cell, variant: Variant, pace: Pace, told: Told) -> dict[str, Any]:
    pair = [cell.contender(variant) for _ in range(2)]
    lines = [_Line(contender.step, facts) for contender, facts in zip(pair, (False, True), strict=True)]
    for contender, line in zip(pair, lines, strict=True):
        contender.step = line
    with kernels(cell.plan.deterministic):
        without, including = take_turns(pair, pace, told=told)
    return {
        **cell.facts(),
        **variant.facts(),
        "numbers": lines[1].numbers,
        "without": spread(without),
        "with": spread(including),
        "cost": statistics.median(b / a for a, b in zip(without, including, strict=True)) - 1,
    }


class _Line:
    """A step of which a record's line is made, with the facts or without.

    Attributes:
        numbers: how many numbers the facts of a step hold.
    """

    def __init__(self, step: Step, facts: bool) -> None:
        self.numbers = 0
        self._step, self._facts = step, facts

    def __call__(self, images: Tensor) -> bytes:
        output = self._step(images)
        wrong = int((output.logits.argmax(1) != 0).sum())
        facts = diagnostics_to_json(output.diagnostics) if self._facts else {}
        self.numbers = sum(len(value) if isinstance(value, list) else 1 for value in facts.values())
        return dump_line({"images": len(images), "wrong": wrong, "facts": facts})
