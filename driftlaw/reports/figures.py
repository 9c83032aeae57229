"""Figures of a report: error along the stream and by round, layer weights, and cost."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, groupby, pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import MaxNLocator

from driftlaw.records import RunRecord, error_by_round
from driftlaw.reports.document import Figure
from driftlaw.reports.format import error_text, milliseconds_text, passes_text, short_name
from driftlaw.reports.protocol import protocol_key
from driftlaw.reports.result_table import SERIES_COLORS, ResultRow, ResultTable
from driftlaw.reports.svg import DASHES, FAINT, INK, LINE, SERIES, WIDTH, svg_figure

LAYER_WEIGHTS = "layer_weights"
_MAX_HEAT_MAP_COLUMNS = 1200  # more steps are averaged, so that the page stays small
_MAX_LAYER_NAMES = 40
_LEGEND_WIDTH = 165  # characters per line of the legend
_HANDLE_WIDTH = 8  # characters that the line sample next to a label takes

Array = np.ndarray[Any, np.dtype[np.float64]]


def draw_error_along_stream(table: ResultTable) -> Figure | None:
    """Draw the error per batch of every row, and its running mean within each domain; None without labels."""
    rows = [row for row in table.rows if row.first.batches and row.first.mean_error is not None]
    if not rows:
        return None
    with svg_figure((WIDTH, 3.6), f"stream {table.protocol.key}") as (canvas, to_svg):
        axes = canvas.add_subplot()
        for row in rows:
            _draw_error(axes, row, series_style(table, row))
        _draw_domains(axes, max((row.first for row in rows), key=lambda record: len(record.batches)))
        axes.set_xlabel("batch")
        _finish_error_axes(canvas, axes, rows)
        svg = to_svg()
    rule = rows[0].first.header["reset_on"]
    known = ", which methods are not informed about" if rule == "never" else f" (reset on: {rule})"
    seeds = "Mean over seeds. " if table.has_spread else ""
    thick = "Thick: running mean within a domain."
    caption = f"Error along the stream. Thin: error per batch. {thick} {seeds}Vertical lines: domain changes{known}."
    means = "; ".join(f"{row.label} {error_text(row.summaries[0].mean)} percent" for row in rows)
    return Figure(svg, caption, f"Line chart of the error per batch along the stream. Means: {means}.")


def draw_error_by_round(table: ResultTable) -> Figure | None:
    """Draw the error per round of every row; None if the stream does not repeat."""
    rows = [row for row in table.rows if row.finished and len(error_by_round(row.first)) > 1]
    errors = [(row, np.mean([error_by_round(record) for record in row.records], axis=0)) for row in rows]
    if not rows:
        return None
    with svg_figure((WIDTH, 3.2), f"rounds {table.protocol.key}") as (canvas, to_svg):
        axes = canvas.add_subplot()
        for row, values in errors:
            rounds = range(1, len(values) + 1)
            axes.plot(rounds, values, label=row.label, marker="o", markersize=3.5, **series_style(table, row))
        axes.set_xlabel("round")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        _finish_error_axes(canvas, axes, rows)
        svg = to_svg()
    ends = "; ".join(f"{row.label} {error_text(values[0])} to {error_text(values[-1])}" for row, values in errors)
    caption = f"Error by round, {table.protocol.name}" + (", mean over seeds." if table.has_spread else ".")
    return Figure(svg, caption, f"Line chart of the error per round. First to last round, percent: {ends}.")


def draw_layer_weights(row: ResultRow) -> Figure | None:
    """Draw the weight of every layer at every step; None if the method does not record ``layer_weights``."""
    record = row.first
    weights = np.array(record.diagnostics(LAYER_WEIGHTS), dtype=float).T
    if weights.size == 0 or weights.ndim != 2:
        return None
    largest = float(weights.max())
    names = record.diagnostic_labels(LAYER_WEIGHTS)
    if len(names) != len(weights):
        names = [f"layer {index}" for index in range(len(weights))]
    size = (WIDTH, min(9.0, 1.6 + 0.135 * max(10, len(names))))
    with svg_figure(size, f"weights {row.label} {protocol_key(record)}") as (canvas, to_svg):
        axes = canvas.add_subplot()
        extent = (0.0, float(weights.shape[1]), float(len(names)), 0.0)
        scale: dict[str, Any] = {"cmap": "magma", "norm": PowerNorm(0.5, vmin=0.0, vmax=max(1e-12, largest))}
        image = axes.imshow(_average_columns(weights), aspect="auto", interpolation="none", extent=extent, **scale)
        _draw_layer_names(axes, names)
        _draw_domains(axes, record, over_image=True)
        axes.set_xlabel("batch")
        bar = canvas.colorbar(image, ax=axes, location="bottom", shrink=0.35, aspect=40, pad=0.02)
        ticks = [tick for tick in (0.0, 0.01, 0.1, 0.25, 0.5, 1.0) if tick <= largest]
        bar.set_ticks(ticks, labels=[f"{tick:g}" for tick in ticks])
        bar.set_label("layer weight: fraction of the learning rate (square-root scale)")
        bar.outline.set_visible(False)
        svg = to_svg()
    caption = (
        f"{row.label}, seed {record.seed}: weight of each of its {len(names)} layers, from input to output, per step. "
        f"Over the whole stream, the median weight is {np.median(weights):.3f}, and "
        f"{100 * np.mean(weights > 0.5):.0f} % of the weights are above 0.5."
    )
    top = ", ".join(names[index] for index in np.argsort(-weights.mean(axis=1), kind="stable")[:3])
    return Figure(svg, caption, f"Heat map of layer weights, layers by steps. Largest on average: {top}.")


def draw_cost(table: ResultTable) -> Figure | None:
    """Draw error, milliseconds per step and forward passes per step as bars, one per finished row."""
    rows = [row for row in table.rows if row.finished]
    if not rows:
        return None
    panels: list[tuple[str, list[float | None], Callable[[float | None], str]]] = [
        (f"error ({table.summary_names[0]}), %", [row.summaries[0].mean for row in rows], error_text),
        ("milliseconds per step", [row.cost.seconds for row in rows], milliseconds_text),
        ("FLOPs per step, in forward passes", [row.cost.forward_passes for row in rows], passes_text),
    ]
    panels = [panel for panel in panels if set(panel[1]) != {None}]
    with svg_figure((WIDTH, 0.9 + 0.34 * len(rows)), f"cost {table.protocol.key}") as (canvas, to_svg):
        all_axes = canvas.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        colors = [series_style(table, row)["color"] for row in rows]
        for axes, (title, values, to_text) in zip(all_axes, panels, strict=True):
            axes.barh(range(len(rows)), [value or 0.0 for value in values], height=0.62, color=colors)
            for index, value in enumerate(values):
                end = (value or 0.0, index)
                axes.annotate(to_text(value), end, xytext=(4, 0), textcoords="offset points", va="center", fontsize=8.5)
            axes.set_title(title, loc="left", fontsize=9, color=FAINT)
            axes.set_xlim(0, 1.25 * max([value for value in values if value], default=1.0))
            axes.spines["bottom"].set_visible(False)
            axes.tick_params(axis="both", length=0)
            axes.set_xticks([])
        all_axes[0].set_yticks(range(len(rows)), [row.label for row in rows], color=INK)
        all_axes[0].invert_yaxis()
        svg = to_svg()
    costs = [(row.label, milliseconds_text(row.cost.seconds), passes_text(row.cost.forward_passes)) for row in rows]
    described = "; ".join(f"{label} {time} ms and {passes}" for label, time, passes in costs)
    caption = "Error and cost: median time per step, and FLOPs per step (forward and backward) in forward passes."
    return Figure(svg, caption, f"Bar chart of error, milliseconds per step and forward passes per step: {described}.")


def series_style(table: ResultTable, row: ResultRow) -> dict[str, Any]:
    """Return color and line style of a row; colors repeat with another dash, unfinished runs are dotted."""
    series = table.series(row)
    repeats, color = divmod(series - 1, SERIES_COLORS) if series else (0, -1)
    return {"color": SERIES[color + 1], "linestyle": DASHES[repeats % len(DASHES)] if row.finished else ":"}


def _finish_error_axes(canvas: Canvas, axes: Axes, rows: Sequence[ResultRow]) -> None:
    axes.set(ylabel="error, %", ylim=(0, None))
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    fitting = int(_LEGEND_WIDTH / (_HANDLE_WIDTH + max(len(row.label) for row in rows)))
    canvas.legend(loc="outside upper left", ncols=max(1, min(len(rows), 6, fitting)), frameon=False)


def _draw_error(axes: Axes, row: ResultRow, style: dict[str, Any]) -> None:
    length = min(len(record.batches) for record in row.records)
    lines = [record.batches[:length] for record in row.records]
    errors = np.mean([[100.0 * line["wrong"] / line["images"] for line in run] for run in lines], axis=0)
    names = [line["domain"]["name"] for line in lines[0]]
    middle = np.arange(length) + 0.5
    label = row.label if row.finished else f"{row.label} (unfinished)"
    axes.plot(middle, errors, linewidth=0.7, alpha=0.35, color=style["color"])
    for index, (start, stop) in enumerate(constant_segments(names)):
        smooth = _running_mean(errors[start:stop])
        axes.plot(middle[start:stop], smooth, linewidth=1.8, label=label if index == 0 else None, **style)


def _running_mean(values: Array) -> Array:
    """Return a centered mean over about a third of a domain, narrower at its ends."""
    reach = max(1, min(12, len(values) // 6))
    sums = np.concatenate([[0.0], np.cumsum(values)])
    at = np.arange(len(values))
    low, high = np.maximum(at - reach, 0), np.minimum(at + reach + 1, len(values))
    return np.asarray((sums[high] - sums[low]) / (high - low))


def constant_segments(names: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Iterate over start and stop of each run of equal names.

    >>> list(constant_segments(["fog", "fog", "snow"]))
    [(0, 2), (2, 3)]
    """
    return pairwise(accumulate((len(list(group)) for _, group in groupby(names)), initial=0))


def _draw_domains(axes: Axes, record: RunRecord, *, over_image: bool = False) -> None:
    """Draw a line at every domain change and the short names above; nothing if there are more than 60 segments."""
    names = [line["domain"]["name"] for line in record.batches]
    segments = list(constant_segments(names))
    axes.set_xlim(0, len(names))
    if len(segments) > 60:
        return
    style: dict[str, Any] = {"color": "white", "alpha": 0.5} if over_image else {"color": LINE}
    for start, stop in segments:
        if start:
            axes.axvline(start, linewidth=0.8, zorder=1.5, **style)
        above: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "rotation": 90 if len(segments) > 15 else 0}
        position = ((start + stop) / 2, 1.015)
        axes.text(*position, short_name(names[start]), ha="center", va="bottom", fontsize=7.2, color=FAINT, **above)


def _average_columns(weights: Array) -> Array:
    width = math.ceil(weights.shape[1] / _MAX_HEAT_MAP_COLUMNS)
    starts = np.arange(0, weights.shape[1], width)
    counts = np.diff([*starts, weights.shape[1]])
    return np.asarray(np.add.reduceat(weights, starts, axis=1) / counts)


def _draw_layer_names(axes: Axes, names: Sequence[str]) -> None:
    """Write the names of at most 40 layers on the left, and the stages of the model on the right."""
    shown = range(0, len(names), math.ceil(len(names) / _MAX_LAYER_NAMES))
    axes.set_yticks([index + 0.5 for index in shown], [names[index] for index in shown], fontsize=6.5)
    axes.tick_params(axis="y", length=0)
    stages = layer_stages(names)
    for start, stop in constant_segments(stages):
        if start:
            axes.axhline(start, color="white", alpha=0.5, linewidth=0.8)
        if len(set(stages)) > 1 and stop - start > 1:
            right = axes.get_yaxis_transform()
            axes.text(1.008, (start + stop) / 2, stages[start], transform=right, fontsize=8, color=FAINT, va="center")


def layer_stages(names: Sequence[str]) -> list[str]:
    """Return the stage of each layer: the shortest name prefix that gives 3 to 12 stages of similar size."""
    for depth in (1, 2, 3):
        stages = [".".join(name.split(".")[: min(depth, max(1, name.count(".")))]) for name in names]
        lengths = [stop - start for start, stop in constant_segments(stages)]
        if 3 <= len(lengths) <= 12 and len(set(stages)) > 2 and max(lengths) <= 0.75 * len(names):
            return stages
    return ["" for _ in names]
