"""What the paper claims of its tables and figures, held against our records: does it hold, and by which numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from driftlaw.reports.format import (
    difference_text,
    error_text,
    flops_text,
    interval_text,
    listed,
    short_name,
    spread_text,
)
from driftlaw.reports.published import LAW, Comparison
from driftlaw.reports.result_table import ResultRow, ResultTable
from driftlaw.reports.statistics import paired_difference
from tools.results.layer_profiles import BLUR, CLEAN, NOISE, Profile, by_network
from tools.results.paper_figures import SURGICAL, fisher_diagonal, sweep_rows

NORM = "norm"
NEAR = 1.0  # points: what the project calls agreement with a printed mean
HARDLY = 0.1  # points: «best or near it» for the decay of the Fisher information


@dataclass(frozen=True)
class Finding:
    """A claim, whether our records bear it out, and the numbers that say so."""

    claim: str
    holds: bool
    evidence: str

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        return "holds" if self.holds else "does not hold"


# --- tables ----------------------------------------------------------------------------------------------------------


def find_agreement(comparison: Comparison) -> list[Finding]:
    """Return whether LAW with the paper's settings comes near the printed mean, where there is one."""
    found = []
    for line in comparison.rows if comparison.same_network else ():
        gap = line.differences[0]
        if line.row.method == LAW and line.published is not None and gap is not None and not line.setting_differences:
            evidence = f"ours {_told(line.row)}, paper {line.published.mean}, difference {difference_text(gap)}"
            claim = f"{comparison.table.protocol.name}: LAW is within {NEAR:g} point of the paper"
            found.append(Finding(claim, abs(gap) <= NEAR, evidence))
    return found


def find_tuned(comparison: Comparison) -> list[Finding]:
    """Return whether LAW with settings of our own choice is at or below the printed mean."""
    found = []
    for line in comparison.rows if comparison.same_network else ():
        gap = line.differences[0]
        if line.row.method == LAW and line.published is not None and gap is not None and line.setting_differences:
            settings = listed(line.setting_differences)
            claim = f"{comparison.table.protocol.name}: LAW with {settings} is at or below the paper"
            evidence = f"ours {_told(line.row)}, paper {line.published.mean}, difference {difference_text(gap)}"
            found.append(Finding(claim, round(gap, 1) <= 0.0, evidence))
    return found


def find_gain(comparison: Comparison) -> list[Finding]:
    """Return whether LAW with the paper's settings is ahead of BN-1 by as much as the paper prints.

    BN-1 does not learn: what it errs on is the network's own, and what LAW gains on it hangs less on how well the
    network was trained than the error does.
    """
    lines = [line for line in comparison.rows if line.row.method in (LAW, NORM) and line.row.finished]
    lines = [
        line
        for line in lines
        if comparison.same_network and line.published is not None and not line.setting_differences
    ]
    ours = {line.row.method: line.row.summaries[0].mean for line in lines}
    theirs = {line.row.method: line.published.summaries[0] for line in lines if line.published}
    own, printed = _ahead(ours), _ahead(theirs)
    if own is None or printed is None or len(lines) > len(ours):  # of two rows of a method nobody knows which
        return []
    told = [
        f"{whose} {error_text(means[NORM])} − {error_text(means[LAW])} = {difference_text(gain)}"
        for whose, means, gain in (("ours", ours, own), ("paper", theirs, printed))
    ]
    claim = f"{comparison.table.protocol.name}: LAW is ahead of BN-1 by as much as in the paper, to {NEAR:g} point"
    return [Finding(claim, abs(own - printed) <= NEAR, "; ".join(told))]


def _ahead(means: Mapping[str, float | None]) -> float | None:
    law, norm = means.get(LAW), means.get(NORM)
    return None if law is None or norm is None else norm - law


def find_lowest_source_free(table: ResultTable) -> list[Finding]:
    """Return whether LAW errs least of the methods that do without source data, beyond doubt (Table 1)."""
    rows = [row for row in table.ranked if not row.needs_train_data]
    law = next((row for row in rows if row.method == LAW), None)
    rivals = [row for row in rows if row.method != LAW]
    if law is None or not rivals:
        return []
    nearest = rivals[0]
    gap = paired_difference(law.records, nearest.records)
    holds = gap is not None and gap.is_significant and not gap.is_above_zero
    claim = f"{table.protocol.name}: LAW errs less than every other source-free method that was run, beyond doubt"
    return [
        Finding(
            claim,
            holds,
            f"{law.label} {_told(law)} against {nearest.label} {_told(nearest)}, {interval_text(gap)} points",
        )
    ]


def find_order(table: ResultTable, methods: Sequence[str]) -> list[Finding]:
    """Return whether methods rank as in a table of the paper, the lowest error first (Table 3: LAW, AutoRGN, TENT)."""
    rows = [next((row for row in table.ranked if row.method == name), None) for name in methods]
    present = [row for row in rows if row is not None]
    if len(present) < len(methods):
        return []
    means = [row.summaries[0].mean or 0.0 for row in present]
    claim = f"{table.protocol.name}: errors rise in the order {', '.join(row.title for row in present)}"
    told = ", ".join(f"{row.label} {_told(row)}" for row in present)
    return [Finding(claim, all(low < high for low, high in pairwise(means)), told)]


def find_minimum(table: ResultTable, setting: str, name: str) -> list[Finding]:
    """Return whether the error has its minimum inside the range that was tried, not at an end (Tables 4, 5 and 10)."""
    rows = sweep_rows(table, setting)
    if len(rows) < 3:
        return []
    means = [row.summaries[0].mean or 0.0 for row in rows]
    lowest = int(np.argmin(means))
    claim = f"{table.protocol.name}: the error has a minimum in {name}"
    evidence = f"lowest at {_value(rows[lowest], setting)}; {_curve(rows, setting)}"
    return [Finding(claim, 0 < lowest < len(rows) - 1, evidence)]


def find_divergence(table: ResultTable, setting: str, name: str) -> list[Finding]:
    """Return whether the error is largest, or hardly less, at the lowest value that was tried (τ = 0, Table 10)."""
    rows = sweep_rows(table, setting)
    if len(rows) < 3:
        return []
    means = [row.summaries[0].mean or 0.0 for row in rows]
    end = _value(rows[0], setting)
    claim = f"{table.protocol.name}: the error grows towards {name} = {end} and is largest there, to {NEAR:g} point"
    return [Finding(claim, max(means[1:]) - NEAR <= means[0] > means[-1], _curve(rows, setting))]


def find_best_end(table: ResultTable, setting: str, name: str) -> list[Finding]:
    """Return whether the largest value is best or hardly worse than the best (γ = 1, Table 9)."""
    rows = sweep_rows(table, setting)
    if len(rows) < 2:
        return []
    means = [row.summaries[0].mean or 0.0 for row in rows]
    claim = f"{table.protocol.name}: {name} = {_value(rows[-1], setting)} is best or within {HARDLY:g} point of it"
    return [Finding(claim, means[-1] - min(means) <= HARDLY, _curve(rows, setting))]


def find_better_part(table: ResultTable) -> list[Finding]:
    """Return whether a part of the network, tuned alone, beats TENT, and LAW beats every part (Figure 1a)."""
    ranked = table.ranked
    part = next((row for row in ranked if row.method == SURGICAL), None)
    found = []
    for claim, low, high in (
        ("tuning a part of the network errs less than TENT", part, _first(ranked, "tent")),
        ("LAW errs less than tuning any part", _first(ranked, LAW), part),
    ):
        if low is not None and high is not None:
            holds = (low.summaries[0].mean or 0.0) < (high.summaries[0].mean or 0.0)
            told = f"{low.label} {_told(low)} against {high.label} {_told(high)}"
            found.append(Finding(f"{table.protocol.name}: {claim}", holds, told))
    return found


def find_cheaper_step(table: ResultTable) -> list[Finding]:
    """Return whether a step of LAW costs less than one of the heavier methods, forward and backward (Figure 1b)."""
    law = _first(table.ranked, LAW)
    found = []
    for rival in (_first(table.ranked, name) for name in ("cotta", "rmt")):
        ours, theirs = (row.cost.step_flops if row else None for row in (law, rival))
        if rival is not None and ours is not None and theirs is not None:
            claim = f"{table.protocol.name}: a step of LAW costs less than one of {rival.title}"
            told = f"{flops_text(ours)} against {flops_text(theirs)}, {theirs / ours:.1f} times as much"
            found.append(Finding(claim, ours < theirs, told))
    return found


def _first(rows: Sequence[ResultRow], method: str) -> ResultRow | None:
    return next((row for row in rows if row.method == method), None)


def _curve(rows: Sequence[ResultRow], setting: str) -> str:
    return ", ".join(f"{_value(row, setting)}: {_told(row)}" for row in rows)


def _value(row: ResultRow, setting: str) -> str:
    return f"{row.settings[setting]:g}"


def _told(row: ResultRow) -> str:
    summary = row.summaries[0]
    return f"{error_text(summary.mean)}{spread_text(summary.spread)}"


# --- figures ---------------------------------------------------------------------------------------------------------


def find_where_weight_lies(profiles: Sequence[Profile]) -> list[Finding]:
    """Return whether blur concentrates weight in early layers and noise spreads it (Figure 3)."""
    found = []
    for place, met in by_network(profiles).items():
        if NOISE not in met or BLUR not in met:
            continue
        noise, blur = met[NOISE], met[BLUR]
        found += [
            Finding(
                f"{place}: blur concentrates weight in early layers",
                blur.early_share > noise.early_share,
                f"share of the first third of the layers: {100 * blur.early_share:.1f} % under defocus blur, "
                f"{100 * noise.early_share:.1f} % under Gaussian noise",
            ),
            Finding(
                f"{place}: noise spreads weight over the network",
                noise.evenness > blur.evenness,
                f"evenness (1 where all layers weigh the same): {noise.evenness:.3f} under Gaussian noise, "
                f"{blur.evenness:.3f} under defocus blur",
            ),
        ]
    return found


def find_flat_source(profiles: Sequence[Profile]) -> list[Finding]:
    """Return whether unscaled weights are smaller on clean images than on each corruption (Figure 4)."""
    return _source_below(profiles, "source weights are smaller than those of", lambda profile: profile.values)


def find_flat_diagonal(profiles: Sequence[Profile]) -> list[Finding]:
    """Return whether the Fisher diagonal is smaller on clean images than on each corruption (Figure 5)."""
    return _source_below(profiles, "the source's Fisher diagonal is smaller than that of", fisher_diagonal)


def _source_below(
    profiles: Sequence[Profile],
    claim: str,
    read: Callable[[Profile], np.ndarray[tuple[int, ...], np.dtype[np.float64]]],
) -> list[Finding]:
    """Hold the mean over layers, and most layers one by one, against each other."""
    found = []
    for place, met in by_network(profiles).items():
        for domain, target in met.items():
            if domain == CLEAN or CLEAN not in met or len(target.values) != len(met[CLEAN].values):
                continue
            source, shifted = read(met[CLEAN]), read(target)
            below = float(np.mean(source < shifted))
            evidence = (
                f"mean over layers {source.mean():.3g} against {shifted.mean():.3g}; "
                f"smaller in {100 * below:.0f} % of {len(source)} layers"
            )
            holds = bool(source.mean() < shifted.mean() and below > 0.5)
            found.append(Finding(f"{place}: {claim} {short_name(domain)}", holds, evidence))
    return found
