"""Claims of the paper's tables, checked with our records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from driftlaw.reports.format import (
    difference_text,
    error_text,
    flops_text,
    interval_text,
    listed,
    spread_text,
)
from driftlaw.reports.published import LAW, ComparedRow, Comparison
from driftlaw.reports.result_table import ResultRow, ResultTable
from driftlaw.reports.statistics import paired_difference
from tools.results.table_figures import SURGICAL, sweep_rows

NORM = "norm"
AGREEMENT = 1.0  # percentage points: what the project calls agreement with a published mean
NEGLIGIBLE = 0.1  # percentage points: 'best or close to it' for the decay of the Fisher information


@dataclass(frozen=True)
class ClaimCheck:
    """A claim, whether it holds for our records, and the numbers."""

    claim: str
    holds: bool
    evidence: str

    @property
    def outcome(self) -> str:
        """The outcome in words."""
        return "holds" if self.holds else "does not hold"


def check_agreement(comparison: Comparison) -> list[ClaimCheck]:
    """Check that LAW with the paper's settings is close to the published mean, if there is one."""
    results = []
    for line in comparison.rows if comparison.same_network else ():
        difference = line.differences[0]
        if _is_published_law(line) and difference is not None and not line.setting_differences:
            claim = f"{comparison.table.protocol.name}: LAW is within {AGREEMENT:g} percentage point of the paper"
            results.append(ClaimCheck(claim, abs(difference) <= AGREEMENT, _against_paper(line, difference)))
    return results


def check_tuned(comparison: Comparison) -> list[ClaimCheck]:
    """Check that LAW with settings tuned by us is at or below the published mean."""
    results = []
    for line in comparison.rows if comparison.same_network else ():
        difference = line.differences[0]
        if _is_published_law(line) and difference is not None and line.setting_differences:
            settings = listed(line.setting_differences)
            claim = f"{comparison.table.protocol.name}: the error of LAW with {settings} is at or below the paper's"
            results.append(ClaimCheck(claim, round(difference, 1) <= 0.0, _against_paper(line, difference)))
    return results


def check_gain(comparison: Comparison) -> list[ClaimCheck]:
    """Check that LAW with the paper's settings is better than BN-1 by as much as in the paper.

    BN-1 does not update parameters. The gain over it depends less on how well the model was trained than the error.
    """
    lines = [line for line in comparison.rows if line.row.method in (LAW, NORM) and line.row.finished]
    lines = [
        line
        for line in lines
        if comparison.same_network and line.published is not None and not line.setting_differences
    ]
    ours = {line.row.method: line.row.summaries[0].mean for line in lines}
    paper = {line.row.method: line.published.summaries[0] for line in lines if line.published}
    our_gain, paper_gain = _gain(ours), _gain(paper)
    if our_gain is None or paper_gain is None or len(lines) > len(ours):  # with two rows of a method it is ambiguous
        return []
    evidence = [
        f"{whose} {error_text(means[NORM])} − {error_text(means[LAW])} = {difference_text(gain)}"
        for whose, means, gain in (("ours", ours, our_gain), ("paper", paper, paper_gain))
    ]
    claim = (
        f"{comparison.table.protocol.name}: the gain of LAW over BN-1 is within {AGREEMENT:g} percentage point of the "
        "paper's"
    )
    return [ClaimCheck(claim, abs(our_gain - paper_gain) <= AGREEMENT, "; ".join(evidence))]


def _gain(means: Mapping[str, float | None]) -> float | None:
    law, norm = means.get(LAW), means.get(NORM)
    return None if law is None or norm is None else norm - law


def check_lowest_without_train_data(table: ResultTable) -> list[ClaimCheck]:
    """Check that LAW has significantly the lowest error of the methods without training data (Table 1)."""
    rows = [row for row in table.ranked if not row.needs_train_data]
    law = _first(rows, LAW)
    others = [row for row in rows if row.method != LAW]
    if law is None or not others:
        return []
    difference = paired_difference(law.records, others[0].records)
    claim = f"{table.protocol.name}: LAW has a significantly lower error than every other method without training data"
    evidence = f"{_label_and_error(law)} and {_label_and_error(others[0])}, {interval_text(difference)} points"
    holds = difference is not None and difference.is_significant and not difference.is_above_zero
    return [ClaimCheck(claim, holds, evidence)]


def check_order(table: ResultTable, methods: Sequence[str]) -> list[ClaimCheck]:
    """Check that methods rank as in a table of the paper, lowest error first (Table 3: LAW, AutoRGN, TENT)."""
    rows = [row for name in methods if (row := _first(table.ranked, name)) is not None]
    if len(rows) < len(methods):
        return []
    means = [row.summaries[0].mean or 0.0 for row in rows]
    claim = f"{table.protocol.name}: errors increase in the order {', '.join(row.title for row in rows)}"
    evidence = ", ".join(map(_label_and_error, rows))
    return [ClaimCheck(claim, all(low < high for low, high in pairwise(means)), evidence)]


def check_minimum(table: ResultTable, setting: str, symbol: str) -> list[ClaimCheck]:
    """Check that the lowest error is inside the range of values, not at an end (Tables 4, 5 and 10)."""
    rows = sweep_rows(table, setting)
    if len(rows) < 3:
        return []
    lowest = int(np.argmin([row.summaries[0].mean or 0.0 for row in rows]))
    claim = f"{table.protocol.name}: the error has a minimum in {symbol}"
    evidence = f"lowest at {_value(rows[lowest], setting)}; {_curve(rows, setting)}"
    return [ClaimCheck(claim, 0 < lowest < len(rows) - 1, evidence)]


def check_divergence(table: ResultTable, setting: str, symbol: str) -> list[ClaimCheck]:
    """Check that the error is largest at the lowest value, up to the agreement limit (τ = 0, Table 10)."""
    rows = sweep_rows(table, setting)
    if len(rows) < 3:
        return []
    means = [row.summaries[0].mean or 0.0 for row in rows]
    claim = (
        f"{table.protocol.name}: the error grows towards {symbol} = {_value(rows[0], setting)} and is largest there, "
        f"within {AGREEMENT:g} percentage point"
    )
    return [ClaimCheck(claim, max(means[1:]) - AGREEMENT <= means[0] > means[-1], _curve(rows, setting))]


def check_largest_is_best(table: ResultTable, setting: str, symbol: str) -> list[ClaimCheck]:
    """Check that the largest value has the lowest error, or one negligibly higher (γ = 1, Table 9)."""
    rows = sweep_rows(table, setting)
    if len(rows) < 2:
        return []
    means = [row.summaries[0].mean or 0.0 for row in rows]
    claim = (
        f"{table.protocol.name}: {symbol} = {_value(rows[-1], setting)} has the lowest error, or one within "
        f"{NEGLIGIBLE:g} percentage points of it"
    )
    return [ClaimCheck(claim, means[-1] - min(means) <= NEGLIGIBLE, _curve(rows, setting))]


def check_parts(table: ResultTable) -> list[ClaimCheck]:
    """Check that adapting a part of the model is better than TENT, and LAW better than any part (Figure 1a)."""
    part = _first(table.ranked, SURGICAL)
    results = []
    for claim, low, high in (
        ("adapting a part of the model has a lower error than TENT", part, _first(table.ranked, "tent")),
        ("LAW has a lower error than adapting any part", _first(table.ranked, LAW), part),
    ):
        if low is not None and high is not None:
            holds = (low.summaries[0].mean or 0.0) < (high.summaries[0].mean or 0.0)
            evidence = f"{_label_and_error(low)} and {_label_and_error(high)}"
            results.append(ClaimCheck(f"{table.protocol.name}: {claim}", holds, evidence))
    return results


def check_cost(table: ResultTable) -> list[ClaimCheck]:
    """Check that a step of LAW costs less than one of CoTTA and RMT, forward and backward (Figure 1b)."""
    law = _first(table.ranked, LAW)
    results = []
    for other in (_first(table.ranked, name) for name in ("cotta", "rmt")):
        law_flops, other_flops = (row.cost.step_flops if row else None for row in (law, other))
        if other is not None and law_flops is not None and other_flops is not None:
            claim = f"{table.protocol.name}: a step of LAW costs fewer FLOPs than one of {other.title}"
            evidence = f"{flops_text(law_flops)} and {flops_text(other_flops)}, ratio {other_flops / law_flops:.1f}"
            results.append(ClaimCheck(claim, law_flops < other_flops, evidence))
    return results


def _is_published_law(line: ComparedRow) -> bool:
    return line.row.method == LAW and line.published is not None


def _against_paper(line: ComparedRow, difference: float) -> str:
    published = line.published.mean if line.published else None
    return f"ours {_error(line.row)}, paper {published}, difference {difference_text(difference)}"


def _first(rows: Sequence[ResultRow], method: str) -> ResultRow | None:
    return next((row for row in rows if row.method == method), None)


def _curve(rows: Sequence[ResultRow], setting: str) -> str:
    return ", ".join(f"{_value(row, setting)}: {_error(row)}" for row in rows)


def _value(row: ResultRow, setting: str) -> str:
    return f"{row.settings[setting]:g}"


def _label_and_error(row: ResultRow) -> str:
    return f"{row.label} {_error(row)}"


def _error(row: ResultRow) -> str:
    return f"{error_text(row.summaries[0].mean)}{spread_text(row.summaries[0].spread)}"
