"""Line and bar charts of a report: error and diagnostics along the stream, error by round, and cost."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby, pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import MaxNLocator

from driftlaw.records import RunRecord, error_by_round
from driftlaw.records.jsonl import Line
from driftlaw.records.run_record import batch_error
from driftlaw.reports.document import Figure
from driftlaw.reports.format import LABELS, error_text, milliseconds_text, passes_text, short_name
from driftlaw.reports.result_table import SERIES_COLORS, ResultRow, ResultTable
from driftlaw.reports.svg import CSS_COLORS, DASHES, FAINT, INK, LINE, SERIES, WIDTH, svg_figure

_MAX_HOVER_VALUES = 800  # more batches are averaged, so that the page stays small
_LEGEND_WIDTH = 165  # characters per line of the legend
_HANDLE_WIDTH = 8  # characters that the line sample next to a label takes

Array = np.ndarray[Any, np.dtype[np.float64]]


def draw_error_along_stream(table: ResultTable) -> Figure | None:
    """Draw the error per batch of every row, and its running mean within each domain; None if no error is known."""
    rule = table.rows[0].first.header["reset_on"]
    known = ", which methods are not informed about" if rule == "never" else f" (reset on: {rule})"
    seeds = "Mean over seeds. " if table.has_spread else ""
    thick = "Thick: running mean within a domain."
    caption = f"Error along the stream. Thin: error per batch. {thick} {seeds}Vertical lines: domain changes{known}."
    means = [f"{row.label} {error_text(row.summaries[0].mean)} percent" for row in table.rows if row.first.batches]
    description = f"Line chart of the error per batch along the stream. Means: {'; '.join(means)}."

    def error(line: Line) -> float:
        return math.nan if (value := batch_error(line)) is None else value

    return _draw_along_stream(table, "error, %", error, caption, description)


def draw_diagnostics(table: ResultTable) -> list[Figure]:
    """Draw the diagnostics that need no labels, as far as the records have them: one line chart per diagnostic."""
    figures = []
    for name, texts in LABELS["diagnostics"].items():
        reduce, scale = getattr(np, texts.get("reduce", "nanmax")), texts.get("scale", 1)

        def value_of(line: Line, name: str = name, reduce: Any = reduce, scale: float = scale) -> float:
            values = np.array(line["facts"].get(name, []), dtype=float)  # None becomes nan
            return scale * float(reduce(values)) if np.isfinite(values).any() else math.nan

        description = f"Line chart along the stream: {texts['heading']}."
        figures.append(_draw_along_stream(table, texts["heading"], value_of, texts["meaning"], description, 2.6))
    return [figure for figure in figures if figure]


def _draw_along_stream(
    table: ResultTable,
    heading: str,
    value_of: Callable[[Line], float],
    caption: str,
    description: str,
    height: float = 3.6,
) -> Figure | None:
    """Draw a value per batch of every row, averaged over seeds. A batch without the value has nan."""
    rows = {}
    for row in (row for row in table.rows if row.first.batches):
        length = min(len(record.batches) for record in row.records)
        values = np.mean([[value_of(line) for line in record.batches[:length]] for record in row.records], axis=0)
        if np.isfinite(values).any():
            rows[row] = values
    if not rows:
        return None
    longest = max((row.first for row in rows), key=lambda record: len(record.batches))
    with svg_figure((WIDTH, height), f"{heading} {table.protocol.key}") as (canvas, to_svg):
        axes = canvas.add_subplot()
        smooth = {row: _draw_line(axes, table, row, values) for row, values in rows.items()}
        draw_domains(axes, longest)
        axes.set_xlabel("batch")
        _finish_line_axes(canvas, axes, table, list(rows), heading)
        svg = to_svg()
        step = math.ceil(len(longest.batches) / _MAX_HOVER_VALUES)
        names = [line["domain"]["name"] for line in longest.batches]
        starts = [(start // step, short_name(names[start])) for start, _ in constant_segments(names)]
        means = {row: average_columns(values[None], step)[0] for row, values in smooth.items()}
        hover = _hover(axes, table, means, first=step / 2, unit="batch", step=step, names=starts)
    return Figure(svg, caption, description, hover)


def draw_error_by_round(table: ResultTable) -> Figure | None:
    """Draw the error per round of every row; None if the stream does not repeat."""
    rows = [row for row in table.rows if row.finished and len(error_by_round(row.first)) > 1]
    errors = [(row, np.mean([error_by_round(record) for record in row.records], axis=0)) for row in rows]
    if not rows:
        return None
    with svg_figure((WIDTH, 3.2), f"rounds {table.protocol.key}") as (canvas, to_svg):
        axes = canvas.add_subplot()
        for row, values in errors:
            style = {**series_style(table, row), "gid": _gid(table, row)}
            axes.plot(range(1, len(values) + 1), values, label=row.label, marker="o", markersize=3.5, **style)
        axes.set_xlabel("round")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        _finish_line_axes(canvas, axes, table, rows, "error, %")
        svg = to_svg()
        hover = _hover(axes, table, dict(errors), first=1, unit="round", step=1, names=[])
    ends = "; ".join(f"{row.label} {error_text(values[0])} to {error_text(values[-1])}" for row, values in errors)
    caption = f"Error by round, {table.protocol.name}" + (", mean over seeds." if table.has_spread else ".")
    return Figure(svg, caption, f"Line chart of the error per round. First to last round, percent: {ends}.", hover)


def draw_cost(table: ResultTable) -> Figure | None:
    """Draw error, milliseconds per step and forward passes per step as bars, one per finished row."""
    rows = [row for row in table.rows if row.finished]
    panels: list[tuple[str, list[float | None], Callable[[float | None], str]]] = [
        (f"error ({table.summary_names[0]}), %", [row.summaries[0].mean for row in rows], error_text),
        ("milliseconds per step", [row.cost.seconds for row in rows], milliseconds_text),
        ("FLOPs per step, in forward passes", [row.cost.forward_passes for row in rows], passes_text),
    ]
    panels = [panel for panel in panels if set(panel[1]) - {None}]
    if not panels:
        return None
    with svg_figure((WIDTH, 0.9 + 0.34 * len(rows)), f"cost {table.protocol.key}") as (canvas, to_svg):
        all_axes = canvas.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        colors = [series_style(table, row)["color"] for row in rows]
        ids = [_gid(table, row) for row in rows]
        for axes, (title, values, to_text) in zip(all_axes, panels, strict=True):
            bars = axes.barh(range(len(rows)), [value or 0.0 for value in values], height=0.62, color=colors)
            for index, (bar, value) in enumerate(zip(bars, values, strict=True)):
                beside: dict[str, Any] = {"xytext": (4, 0), "textcoords": "offset points", "va": "center"}
                axes.annotate(to_text(value), (value or 0.0, index), fontsize=8.5, gid=ids[index], **beside)
                bar.set_gid(ids[index])
            axes.set_title(title, loc="left", fontsize=9, color=FAINT)
            axes.set_xlim(0, 1.25 * max([value for value in values if value], default=1.0))
            axes.spines["bottom"].set_visible(False)
            axes.tick_params(axis="both", length=0)
            axes.set_xticks([])
        all_axes[0].set_yticks(range(len(rows)), [row.label for row in rows], color=INK)
        for text, gid in zip(all_axes[0].get_yticklabels(), ids, strict=True):
            text.set_gid(gid)
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


def _gid(table: ResultTable, row: ResultRow) -> str:
    return f"row-{table.rows.index(row)}"


def _hover(axes: Axes, table: ResultTable, values: Mapping[ResultRow, Array], *, first: float, **labels: Any) -> str:
    """Return the values that a page shows at the pointer, as JSON; to be called after drawing.

    Args:
        axes: The axes of the lines.
        table: The table of the rows.
        values: Values of each line, at equal distances.
        first: Position of the first value on the x axis.
        **labels: ``unit`` and ``step`` of the x axis, and ``names`` of its parts with the index of their first value.
    """
    box, (low, high) = axes.get_position(), axes.get_xlim()
    last = first + labels["step"] * (max(map(len, values.values())) - 1)
    left, right = (round(box.x0 + box.width * (at - low) / (high - low), 5) for at in (first, last))
    lines = [
        {
            "row": table.rows.index(row),
            "label": row.label,
            "color": CSS_COLORS[series_style(table, row)["color"]],
            "values": [float(f"{number:.4g}") if math.isfinite(number) else None for number in numbers],
        }
        for row, numbers in values.items()
    ]
    data = {"left": left, "right": right, "lines": lines, **labels}
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def _finish_line_axes(canvas: Canvas, axes: Axes, table: ResultTable, rows: Sequence[ResultRow], heading: str) -> None:
    axes.set(ylabel=heading, ylim=(0, None))
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    fitting = int(_LEGEND_WIDTH / (_HANDLE_WIDTH + max(len(row.label) for row in rows)))
    legend = canvas.legend(loc="outside upper left", ncols=max(1, min(len(rows), 6, fitting)), frameon=False)
    for row, line, text in zip(rows, legend.get_lines(), legend.get_texts(), strict=True):
        line.set_gid(_gid(table, row))
        text.set_gid(_gid(table, row))


def _draw_line(axes: Axes, table: ResultTable, row: ResultRow, values: Array) -> Array:
    """Draw the values of a row and their running mean. Return the running mean, constant between measured batches."""
    style, gid = series_style(table, row), _gid(table, row)
    label = row.label if row.finished else f"{row.label} (unfinished)"
    at = np.flatnonzero(np.isfinite(values))
    axes.plot(at + 0.5, values[at], linewidth=0.7, alpha=0.35, color=style["color"], gid=gid)
    segments = list(constant_segments([line["domain"]["name"] for line in row.first.batches[: len(values)]]))
    few = len(at) < 3 * len(segments)  # too few values per domain for a mean, and one value is not visible as a line
    smooth = np.full(len(values), np.nan)
    for start, stop in [(0, len(values))] if few else segments:
        inside = at[(at >= start) & (at < stop)]
        smooth[inside] = values[inside] if few else _running_mean(values[inside])
        axes.plot(inside + 0.5, smooth[inside], linewidth=1.8, label=label, gid=gid, **style)
        label = "_nolegend_"
    measured = np.cumsum(np.isfinite(values)) - 1
    return np.where(measured < 0, np.nan, smooth[at][np.maximum(measured, 0)])


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


def draw_domains(axes: Axes, record: RunRecord, *, over_image: bool = False) -> None:
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


def average_columns(values: Array, width: int) -> Array:
    """Return the mean of every ``width`` consecutive columns."""
    starts = np.arange(0, values.shape[1], width)
    counts = np.diff([*starts, values.shape[1]])
    return np.asarray(np.add.reduceat(values, starts, axis=1) / counts)
