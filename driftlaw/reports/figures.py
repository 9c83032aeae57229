"""Figures drawn from records as SVG: error along the stream and by round, layer weights, cost, in a page's colours."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator

from driftlaw.records import RunRecord, error_by_round
from driftlaw.reports.cost import cost_of
from driftlaw.reports.format import error_text, milliseconds_text, short_name, units_text
from driftlaw.reports.protocol import protocol_key
from driftlaw.reports.tables import BASELINE, Row, Table

LAYER_WEIGHTS = "layer_weights"
SERIES = 8  # colours before they repeat with another dash

# Matplotlib writes plain colours; these stand for the page's variables and are replaced in the SVG (see _themed).
_INK, _FAINT, _LINE = "#010203", "#010204", "#010205"
_SERIES = [f"#0201{index:02x}" for index in range(SERIES + 1)]  # the first is the source network's
_DASHES = ("-", (0, (5, 2)), (0, (1, 1.5)))
_VARIABLES = {_INK: "currentColor", _FAINT: "var(--faint, #667)", _LINE: "var(--line, #ccd)"}
_VARIABLES |= {colour: f"var(--series-{index}, #47a)" for index, colour in enumerate(_SERIES)}

_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a name with dollars is a name
    "font.size": 9.0,
    "font.family": "DejaVu Sans",
    "text.color": _INK,
    "axes.labelcolor": _FAINT,
    "axes.edgecolor": _LINE,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": _LINE,
    "ytick.color": _LINE,
    "xtick.labelcolor": _FAINT,
    "ytick.labelcolor": _FAINT,
    "grid.color": _LINE,
    "grid.linewidth": 0.6,
}
_WIDTH = 10.5
_MOST_COLUMNS = 1200  # of a heat-map: more steps are averaged, a page stays small
_MOST_NAMES = 40
_LEGEND_CHARACTERS = 165  # that a line of the legend has room for at the page's width
_HANDLE_CHARACTERS = 8  # that the line beside a label and the space around it take


@dataclass(frozen=True)
class Picture:
    """A figure for the page: its SVG, what it shows in a line, and the same for those who cannot see it."""

    svg: str
    caption: str
    description: str


def draw_error_along_stream(table: Table) -> Picture | None:
    """Draw every row's error a batch: faint as measured, strong as a running mean that stays within a domain."""
    rows = [row for row in table.rows if row.first.batches]
    if not rows:
        return None
    with _figure((_WIDTH, 3.6), f"stream {table.protocol.key}") as (figure, finish):
        axes = figure.add_subplot()
        for row in rows:
            _draw_error(axes, row, _style_of(table, row))
        _draw_domains(axes, max((row.first for row in rows), key=lambda record: len(record.batches)))
        axes.set(xlabel="batch", ylabel="error, %", ylim=(0, None))
        axes.grid(axis="y")
        axes.set_axisbelow(True)
        _draw_legend(figure, [row.label for row in rows])
        svg = finish()
    caption = (
        "Error along the stream. Faint: each batch as it was answered. Strong: running mean within a domain. "
        + ("Mean over seeds. " if table.has_spread else "")
        + f"Upright lines: the domain changes{_resets(table)}."
    )
    described = "; ".join(f"{row.label} {error_text(row.summaries[0].mean)} per cent" for row in rows)
    return Picture(svg, caption, f"Line chart of the error of every batch along the stream. Means: {described}.")


def _resets(table: Table) -> str:
    rule = table.rows[0].first.header["reset_on"]
    return "; no method is told" if rule == "never" else f" (reset on: {rule})"


def draw_error_by_round(table: Table) -> Picture | None:
    """Draw every row's error round by round; None for a stream that does not come round."""
    errors = [
        (row, np.mean([error_by_round(record) for record in row.records], axis=0))
        for row in table.rows
        if row.finished and len(error_by_round(row.first)) > 1
    ]
    if not errors:
        return None
    with _figure((_WIDTH, 3.2), f"rounds {table.protocol.key}") as (figure, finish):
        axes = figure.add_subplot()
        for row, values in errors:
            rounds = range(1, len(values) + 1)
            axes.plot(rounds, values, label=row.label, marker="o", markersize=3.5, **_style_of(table, row))
        axes.set(xlabel="round", ylabel="error, %", ylim=(0, None))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(axis="y")
        axes.set_axisbelow(True)
        _draw_legend(figure, [row.label for row, _ in errors])
        svg = finish()
    told = "; ".join(f"{row.label} {error_text(values[0])} to {error_text(values[-1])}" for row, values in errors)
    caption = f"Error round by round, {table.protocol.name}" + (", mean over seeds." if table.has_spread else ".")
    return Picture(svg, caption, f"Line chart of the error in every round. First to last, per cent: {told}.")


def draw_layer_weights(row: Row) -> Picture | None:
    """Draw the weight of every layer at every step, for a method that offers the fact ``layer_weights``."""
    record = row.first
    weights = np.array(record.diagnostics(LAYER_WEIGHTS), dtype=float).T
    if weights.size == 0 or weights.ndim != 2:
        return None
    names = _layer_names(record, len(weights))
    with _figure(
        (_WIDTH, min(9.0, 1.6 + 0.135 * max(10, len(names)))), f"weights {row.label} {protocol_key(record)}"
    ) as (figure, finish):
        axes = figure.add_subplot()
        picture = axes.imshow(
            _fewer_columns(weights),
            aspect="auto",
            interpolation="none",
            cmap="magma",
            norm=PowerNorm(0.5, vmin=0.0, vmax=max(1e-12, float(weights.max()))),
            extent=(0.0, float(weights.shape[1]), float(len(names)), 0.0),
        )
        _draw_layers(axes, names)
        _draw_domains(axes, record, over_picture=True)
        axes.set_xlabel("batch")
        _draw_scale(figure, axes, picture, float(weights.max()))
        svg = finish()
    caption = (
        f"{row.label}, seed {record.seed}: the weight of each of its {len(names)} layers, from input to output, "
        f"at every step. Over the whole stream the median weight is {np.median(weights):.3f}; "
        f"{100 * np.mean(weights > 0.5):.0f} % of the weights are above 0.5."
    )
    busiest = ", ".join(names[index] for index in np.argsort(-weights.mean(axis=1), kind="stable")[:3])
    return Picture(svg, caption, f"Heat-map of layer weights, layers by steps. The largest on average: {busiest}.")


def _draw_scale(figure: Figure, axes: Axes, picture: AxesImage, largest: float) -> None:
    bar = figure.colorbar(picture, ax=axes, location="bottom", shrink=0.35, aspect=40, pad=0.02)
    ticks = [tick for tick in (0.0, 0.01, 0.1, 0.25, 0.5, 1.0) if tick <= largest]
    bar.set_ticks(ticks, labels=[f"{tick:g}" for tick in ticks])
    bar.set_label("weight of a layer: the share of the learning rate it gets (root scale)")
    bar.outline.set_visible(False)


def draw_cost(table: Table) -> Picture | None:
    """Draw error, milliseconds a step and FLOPs in forward passes beside each other, a bar a row."""
    rows = [row for row in table.rows if row.finished]
    if not rows:
        return None
    costs = [cost_of(row) for row in rows]
    panels: list[tuple[str, list[float | None], Callable[[float | None], str]]] = [
        (f"error ({table.summaries[0]}), %", [row.summaries[0].mean for row in rows], error_text),
        ("milliseconds a step", [_thousandfold(cost.seconds) for cost in costs], _milliseconds),
        ("FLOPs a step, in forward passes", [cost.forward_cost for cost in costs], units_text),
    ]
    panels = [panel for panel in panels if any(value is not None for value in panel[1])]
    with _figure((_WIDTH, 0.9 + 0.34 * len(rows)), f"cost {table.protocol.key}") as (figure, finish):
        all_axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, (title, values, written) in zip(all_axes, panels, strict=True):
            _draw_bars(axes, table, rows, title, values, written)
        all_axes[0].set_yticks(range(len(rows)), [row.label for row in rows])
        all_axes[0].invert_yaxis()
        all_axes[0].tick_params(axis="y", labelcolor=_INK, length=0)
        svg = finish()
    described = "; ".join(
        f"{row.label} {milliseconds_text(cost.seconds)} ms and {units_text(cost.forward_cost)}"
        for row, cost in zip(rows, costs, strict=True)
    )
    caption = (
        "What the error costs: median time of a step, and its FLOPs (forward and backward) against one forward pass."
    )
    return Picture(svg, caption, f"Bar chart of error, milliseconds a step and forward passes a step: {described}.")


def _thousandfold(value: float | None) -> float | None:
    return None if value is None else 1000.0 * value


def _milliseconds(value: float | None) -> str:
    return milliseconds_text(None if value is None else value / 1000.0)


def colour_index(table: Table, row: Row) -> int:
    """Return which of the page's series colours a row has: 0 for the network that does not adapt, then 1, 2, …"""
    others = [other for other in table.rows if other.method != BASELINE]
    return 0 if row.method == BASELINE else 1 + others.index(row) % SERIES


def _style_of(table: Table, row: Row) -> dict[str, Any]:
    others = [other for other in table.rows if other.method != BASELINE]
    turn = others.index(row) // SERIES if row in others else 0
    dash = _DASHES[turn % len(_DASHES)] if row.finished else ":"
    return {"color": _SERIES[colour_index(table, row)], "linestyle": dash}


def _draw_legend(figure: Figure, labels: Sequence[str]) -> None:
    """Draw a legend over the figure, in as many columns as its labels leave room for."""
    fitting = int(_LEGEND_CHARACTERS / (_HANDLE_CHARACTERS + max(map(len, labels))))
    figure.legend(loc="outside upper left", ncols=max(1, min(len(labels), 6, fitting)), frameon=False)


def _draw_error(axes: Axes, row: Row, style: dict[str, Any]) -> None:
    length = min(len(record.batches) for record in row.records)
    errors = np.mean([_errors(record)[:length] for record in row.records], axis=0)
    names = [line["domain"]["name"] for line in row.first.batches[:length]]
    middle = np.arange(length) + 0.5
    label = row.label if row.finished else f"{row.label} (unfinished)"
    axes.plot(middle, errors, linewidth=0.7, alpha=0.35, color=style["color"])
    for index, (start, stop) in enumerate(_stretches(names)):
        smooth = _running_mean(errors[start:stop])
        axes.plot(middle[start:stop], smooth, linewidth=1.8, label=label if index == 0 else None, **style)


def _errors(record: RunRecord) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([100.0 * line["wrong"] / line["images"] for line in record.batches])


def _running_mean(values: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """A centred mean over about a third of a domain, narrower at its ends."""
    reach = max(1, min(12, len(values) // 6))
    sums = np.concatenate([[0.0], np.cumsum(values)])
    at = np.arange(len(values))
    low, high = np.maximum(at - reach, 0), np.minimum(at + reach + 1, len(values))
    means: np.ndarray[Any, np.dtype[np.float64]] = (sums[high] - sums[low]) / (high - low)
    return means


def _stretches(names: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield where each unbroken stretch of one name starts and stops."""
    start = 0
    for _, group in groupby(names):
        stop = start + len(list(group))
        yield start, stop
        start = stop


def _draw_domains(axes: Axes, record: RunRecord, *, over_picture: bool = False) -> None:
    """Draw a line where the domain changes and its short name above; a stream that changes all the time gets none."""
    names = [line["domain"]["name"] for line in record.batches]
    stretches = list(_stretches(names))
    axes.set_xlim(0, len(names))
    if len(stretches) > 60:
        return
    line = {"color": "white", "alpha": 0.5} if over_picture else {"color": _LINE}
    for start, _ in stretches[1:]:
        axes.axvline(start, linewidth=0.8, zorder=1.5, **line)
    upright = len(stretches) > 15
    for start, stop in stretches:
        axes.text(
            (start + stop) / 2,
            1.015,
            short_name(names[start]),
            transform=axes.get_xaxis_transform(),
            rotation=90 if upright else 0,
            ha="center",
            va="bottom",
            fontsize=7.2,
            color=_FAINT,
        )


def _layer_names(record: RunRecord, count: int) -> list[str]:
    names = [str(name) for name in record.header.get("fact_labels", {}).get(LAYER_WEIGHTS, [])]
    return names if len(names) == count else [f"layer {index}" for index in range(count)]


def _fewer_columns(weights: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    width = math.ceil(weights.shape[1] / _MOST_COLUMNS)
    if width == 1:
        return weights
    starts = np.arange(0, weights.shape[1], width)
    counts = np.diff([*starts, weights.shape[1]])
    return np.asarray(np.add.reduceat(weights, starts, axis=1) / counts)


def _draw_layers(axes: Axes, names: Sequence[str]) -> None:
    """Name the layers on the left, every one or every second, third…, and their stages on the right."""
    every = math.ceil(len(names) / _MOST_NAMES)
    shown = range(0, len(names), every)
    axes.set_yticks([index + 0.5 for index in shown], [names[index] for index in shown], fontsize=6.5)
    axes.tick_params(axis="y", length=0)
    stages = _stages(names)
    for start, stop in _stretches(stages):
        if start:
            axes.axhline(start, color="white", alpha=0.5, linewidth=0.8)
        if len(set(stages)) > 1 and stop - start > 1:
            middle = ((start + stop) / 2, 1.008)
            axes.text(
                middle[1],
                middle[0],
                stages[start],
                transform=axes.get_yaxis_transform(),
                fontsize=8,
                color=_FAINT,
                va="center",
            )


def _stages(names: Sequence[str]) -> list[str]:
    """Return the part of the network that each layer belongs to: the shortest prefix that makes 3 to 12 parts."""
    for depth in (1, 2, 3):
        stages = [".".join(name.split(".")[: min(depth, max(1, name.count(".")))]) for name in names]
        if 3 <= len(list(_stretches(stages))) <= 12 and len(set(stages)) > 2 and _balanced(stages):
            return stages
    return ["" for _ in names]


def _balanced(stages: Sequence[str]) -> bool:
    """Whether no part holds nearly everything, which would tell a reader nothing."""
    return max(stop - start for start, stop in _stretches(stages)) <= 0.75 * len(stages)


def _draw_bars(
    axes: Axes,
    table: Table,
    rows: Sequence[Row],
    title: str,
    values: Sequence[float | None],
    written: Callable[[float | None], str],
) -> None:
    colours = [_SERIES[colour_index(table, row)] for row in rows]
    axes.barh(range(len(rows)), [value or 0.0 for value in values], height=0.62, color=colours)
    for index, value in enumerate(values):
        axes.annotate(
            written(value), (value or 0.0, index), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8.5
        )
    axes.set_title(title, loc="left", fontsize=9, color=_FAINT)
    axes.set_xlim(0, 1.25 * max([value for value in values if value], default=1.0))
    axes.spines["bottom"].set_visible(False)
    axes.tick_params(axis="both", length=0)
    axes.set_xticks([])


@contextmanager
def _figure(size: tuple[float, float], name: str) -> Iterator[tuple[Figure, Callable[[], str]]]:
    """Yield a figure in the page's style and the function that turns it into SVG, the same bytes every time."""
    style: dict[Any, Any] = {**matplotlib.rcParamsDefault, **_STYLE, "svg.hashsalt": name, "backend": "agg"}
    with matplotlib.rc_context(style), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a glyph that DejaVu lacks is drawn by the browser
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)

        def finish() -> str:
            text = io.StringIO()
            figure.savefig(text, format="svg", transparent=True)
            return _themed(text.getvalue())

        yield figure, finish


def _themed(svg: str) -> str:
    """Keep the drawing alone (no prologue, dates, addresses, group names) and hand its colours to the page."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(
        r"<defs>\s*<style.*?</style>\s*</defs>", "", svg, count=1, flags=re.DOTALL
    )  # its rules would reach the page
    svg = svg.replace("<svg", '<svg aria-hidden="true" focusable="false" stroke-linejoin="round"', 1)
    svg = re.sub(r"'?DejaVu Sans'?(, [^;\"]*)?", "inherit", svg)
    for sentinel, variable in _VARIABLES.items():
        svg = svg.replace(sentinel, variable)
    return svg
