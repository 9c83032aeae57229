"""What a table says in a sentence, made from its numbers."""

from __future__ import annotations

from driftlaw.reports.format import counted, error_text, interval_text, spread_text
from driftlaw.reports.statistics import RESAMPLES
from driftlaw.reports.tables import BASELINE, Row, Table

KEY_LINE = (
    "Online error in per cent, every image answered when it arrived; lower is better. "
    "Bold: lowest of the column, and the 95 % bootstrap interval of its paired difference from every other row, over "
    "six pairs or more, leaves zero out. Underlined: the lowest where it does not, and the second lowest. ±: standard "
    "deviation over seeds (n − 1)."
)


def summarise(table: Table) -> str:
    """Return the table's outcome: which method errs least, and by how much less than source and than the next."""
    ranked = table.ranked
    if not ranked:
        return "No run has come to the end of its stream yet."
    if len(ranked) == 1:
        return f"{ranked[0].label} errs on {_figure(ranked[0])} of the stream ({_seeds(ranked[0])})."
    best, second = ranked[0], ranked[1]
    if error_text(best.summaries[0].mean) == error_text(second.summaries[0].mean):
        return f"{best.label} and {second.label} share the lowest mean error, {_figure(best)}{_below(table, best)}."
    beside = (
        "" if second.method == BASELINE else f"; the next, {second.label}, has {error_text(second.summaries[0].mean)} %"
    )
    return f"{best.label} has the lowest mean error, {_figure(best)} ({_seeds(best)}){_below(table, best)}{beside}."


def describe_differences(table: Table) -> str:
    """Return how far every row is from the lowest, with the interval; nothing where no two rows share a seed."""
    told = [f"{row.label} {interval_text(row.to_lowest)}" for row in reversed(table.rows) if row.to_lowest is not None]
    if not told:
        return ""
    return (
        f"Points above {table.ranked[0].label}, paired, with the 95 % interval over domains and seeds drawn anew "
        f"{RESAMPLES:,} times: {'; '.join(told)}."
    )


def _figure(row: Row) -> str:
    summary = row.summaries[0]
    return f"{error_text(summary.mean)}{spread_text(summary.spread)} %"


def _seeds(row: Row) -> str:
    return counted(len(row.seeds), "seed", "seeds")


def _below(table: Table, best: Row) -> str:
    source = table.baseline
    if source is None or best.difference is None:
        return ""
    points = error_text(abs(best.difference))
    side = "below" if best.difference < 0 else "above"
    return f": {points} points {side} the network that does not adapt ({error_text(source.summaries[0].mean)} %)"
