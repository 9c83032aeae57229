"""The paper's Figures 1a and 1b, and its ablation tables as curves, drawn from records as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from driftlaw.reports.document import Figure
from driftlaw.reports.figures import series_style
from driftlaw.reports.format import error_text, flops_text, spread_text, value_text
from driftlaw.reports.published import Comparison
from driftlaw.reports.result_table import SERIES_COLORS, ResultRow, ResultTable
from driftlaw.reports.svg import DASHES, FAINT, INK, SERIES, WIDTH, svg_figure

SURGICAL = "surgical"
_TUNED = {"norm": "normalisation layers", "all": "all parameters"}
_WIDE_RANGE = 4.0  # ratio of errors above which the axis is logarithmic
_PAPER_STYLE: dict[str, Any] = {
    "color": FAINT,
    "linestyle": DASHES[1],
    "linewidth": 1.2,
    "marker": "s",
    "markersize": 3.0,
    "label": "paper",
}

Box = tuple[float, float, float, float]


def draw_adapted_part(table: ResultTable) -> Figure | None:
    """Draw the error of surgical fine-tuning over the number of adapted stages, other methods as lines (Figure 1a)."""
    rows = [row for row in table.rows if row.finished]
    surgical = [row for row in rows if row.method == SURGICAL]
    if not surgical:
        return None
    stages = max(int(row.settings["stage"]) for row in surgical)
    curves: dict[tuple[str, str], list[ResultRow]] = {}
    for row in surgical:
        curves.setdefault((str(row.settings["tuned"]), str(row.settings["part"])), []).append(row)
    with svg_figure((WIDTH * 0.72, 3.6), f"tuned part {table.protocol.key}") as (figure, finish):
        axes = figure.add_subplot()
        for number, (key, members) in enumerate(sorted(curves.items(), reverse=True)):
            points = sorted((_adapted_stages(row, stages), row) for row in members if row.summaries[0].mean is not None)
            _draw_points(axes, [x for x, _ in points], [row for _, row in points], number, _curve_name(*key))
        for number, row in enumerate(row for row in rows if row.method != SURGICAL):
            _draw_horizontal(axes, row, number)
        axes.set(xlabel=f"adapted stages, of {stages}", ylabel="error, %", xlim=(0.85, stages + 0.75))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        _error_axis(axes, [row.summaries[0].mean or 0.0 for row in rows])
        figure.legend(loc="outside upper left", ncols=2, frameon=False, handlelength=3.2)
        svg = finish()
    best = min(surgical, key=lambda row: row.summaries[0].mean or 0.0)
    caption = (
        f"Error as a function of the adapted part of the model, {table.protocol.name}. Horizontal lines: methods that "
        f"select the part themselves. The best part, {_part_name(best)}, has an error of {_error(best)}."
    )
    values = "; ".join(f"{row.label} {_error(row)}" for row in rows)
    return Figure(svg, caption, f"Line chart of mean error over the number of adapted stages: {values}.")


def _adapted_stages(row: ResultRow, stages: int) -> int:
    stage = int(row.settings["stage"])
    return {"up_to": stage, "from": stages - stage + 1}.get(str(row.settings["part"]), 1)


def _curve_name(tuned: str, part: str) -> str:
    return f"{_TUNED[tuned]}, {({'up_to': 'from the input', 'from': 'from the output', 'stage': 'one stage'})[part]}"


def _part_name(row: ResultRow) -> str:
    where = {"up_to": "all stages up to", "from": "all stages from", "stage": "stage"}[str(row.settings["part"])]
    return f"{_TUNED[str(row.settings['tuned'])]} of {where} {row.settings['stage']}"


def _draw_points(axes: Axes, x: Sequence[float], rows: Sequence[ResultRow], number: int, label: str) -> None:
    spreads = [row.summaries[0].spread or 0.0 for row in rows]
    axes.errorbar(
        x,
        [row.summaries[0].mean or 0.0 for row in rows],
        yerr=spreads if any(spreads) else None,
        color=SERIES[1 + number % SERIES_COLORS],
        linestyle=DASHES[number % 2],
        linewidth=1.6,
        marker="o",
        markersize=4.0,
        capsize=2.5,
        label=label,
    )


def _draw_horizontal(axes: Axes, row: ResultRow, number: int) -> None:
    mean = row.summaries[0].mean
    if mean is None:
        return
    axes.axhline(mean, color=INK if row.method == "law" else FAINT, linewidth=1.2, linestyle=DASHES[number % 2 + 1])
    axes.annotate(
        f"{row.label} {error_text(mean)}",
        (1.0, mean),
        xycoords=("axes fraction", "data"),
        xytext=(-2, 2),
        textcoords="offset points",
        ha="right",
        va="bottom",
        fontsize=8,
        color=INK,
    )


def draw_error_and_flops(table: ResultTable) -> Figure | None:
    """Draw one point per method: mean error and FLOPs per image of a whole step (Figure 1b)."""
    rows = [row for row in table.rows if row.finished and row.cost.step_flops and row.summaries[0].mean is not None]
    if len(rows) < 2:
        return None
    with svg_figure((WIDTH * 0.72, 3.6), f"flops {table.protocol.key}") as (figure, finish):
        axes = figure.add_subplot()
        for row, side in zip(rows, label_sides(rows), strict=True):
            _draw_method(axes, table, row, side)
        axes.set_xscale("log")
        axes.set(xlabel="FLOPs per image of a step", ylabel=f"error ({table.summary_names[0]}), %")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: flops_text(value)))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.margins(x=0.14, y=0.12)
        _error_axis(axes, [row.summaries[0].mean or 0.0 for row in rows])
        svg = finish()
    caption = (
        f"Error and measured cost of a step, forward and backward, {table.protocol.name}. Hollow points need training "
        "data. The paper's figure counts forward passes only."
    )
    values = "; ".join(f"{row.label} {_error(row)} at {flops_text(row.cost.step_flops)}" for row in rows)
    return Figure(svg, caption, f"Scatter chart of mean error over FLOPs of a step: {values}.")


def label_sides(rows: Sequence[ResultRow]) -> list[tuple[int, int]]:
    """Return for each point where its label goes, as (right or left, above or below), so that labels do not overlap.

    Positions are approximate, in points of the drawing: the axes are about 430 wide and 190 high.
    """
    spots = [(math.log10(row.cost.step_flops or 1.0), row.summaries[0].mean or 0.0) for row in rows]
    (left, right), (low, high) = ((min(axis), max(axis)) for axis in zip(*spots, strict=True))
    points = [(430.0 * (x - left) / (right - left or 1.0), 190.0 * (y - low) / (high - low or 1.0)) for x, y in spots]
    occupied: list[Box] = [(x - 4, y - 4, x + 4, y + 4) for x, y in points]
    sides = []
    for row, (x, y) in zip(rows, points, strict=True):
        width = 5.2 * len(_point_label(row))
        boxes = {side: _label_box(x, y, width, side) for side in ((1, 1), (1, -1), (-1, 1), (-1, -1))}
        free = [side for side, box in boxes.items() if not any(_overlap(box, other) for other in occupied)]
        side = free[0] if free else (1, 1)
        occupied.append(boxes[side])
        sides.append(side)
    return sides


def _point_label(row: ResultRow) -> str:
    return f"{row.label} {error_text(row.summaries[0].mean)}"


def _label_box(x: float, y: float, width: float, side: tuple[int, int]) -> Box:
    start = x + 7 if side[0] > 0 else x - 7 - width
    base = y + 5 if side[1] > 0 else y - 12
    return (start, base, start + width, base + 9)


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _draw_method(axes: Axes, table: ResultTable, row: ResultRow, side: tuple[int, int]) -> None:
    flops, mean = row.cost.step_flops or 0.0, row.summaries[0].mean or 0.0
    color = series_style(table, row)["color"]
    axes.errorbar(
        [flops],
        [mean],
        yerr=row.summaries[0].spread,
        color=color,
        marker="o",
        markersize=7.0,
        markerfacecolor="none" if row.needs_train_data else color,
        markeredgewidth=1.4,
        capsize=2.5,
        linestyle="none",
    )
    axes.annotate(
        _point_label(row),
        (flops, mean),
        xytext=(7 * side[0], 5 if side[1] > 0 else -12),
        textcoords="offset points",
        ha="left" if side[0] > 0 else "right",
        fontsize=8.5,
        color=INK,
    )


def draw_sweep(comparisons: Sequence[Comparison], setting: str, symbol: str) -> Figure | None:
    """Draw the error over one setting, one panel per table, with the paper's values (Tables 4, 5, 9 and 10)."""
    panels = [(item, sweep_rows(item.table, setting)) for item in comparisons]
    panels = [(item, rows) for item, rows in panels if len(rows) > 1]
    if not panels:
        return None
    key = " ".join(item.table.protocol.key for item, _ in panels)
    descriptions = []
    with svg_figure((WIDTH, 3.2), f"sweep {setting} {key}") as (figure, finish):
        for axes, (item, rows) in zip(panel_row(figure, len(panels)), panels, strict=True):
            values = [row.settings[setting] for row in rows]
            _draw_points(axes, range(len(rows)), rows, 2, "ours")
            paper = {
                id(line.row): line.published.mean
                for line in item.rows
                if line.published and not line.setting_differences
            }
            known = [(index, paper[id(row)]) for index, row in enumerate(rows) if id(row) in paper]
            if known:
                axes.plot(*zip(*known, strict=True), **_PAPER_STYLE)
            axes.set_xticks(range(len(rows)), [f"{value:g}" for value in values])
            axes.set_title(item.table.protocol.name, loc="left", fontsize=8.5, color=FAINT)
            axes.set(xlabel=symbol, ylabel="error, %")
            _error_axis(axes, [*(row.summaries[0].mean or 0.0 for row in rows), *(mean for _, mean in known)])
            errors = "; ".join(f"{value:g} {_error(row)}" for value, row in zip(values, rows, strict=True))
            descriptions.append(f"{item.table.protocol.name}: {errors}")
        shared_legend(figure)
        svg = finish()
    caption = f"Error as a function of {symbol}. Error bars are standard deviations over seeds."
    return Figure(svg, caption, f"Line charts of mean error over {symbol}. {' '.join(descriptions)}.")


def sweep_rows(table: ResultTable, setting: str) -> list[ResultRow]:
    """Return the finished rows that differ only in one setting, sorted by its value."""
    candidates = [row for row in table.rows if row.finished and isinstance(row.settings.get(setting), int | float)]
    groups: dict[str, list[ResultRow]] = {}
    for row in candidates:
        others = value_text({name: value for name, value in row.settings.items() if name != setting})
        groups.setdefault(others, []).append(row)
    largest = max(groups.values(), key=len, default=[])
    return sorted(largest, key=lambda row: float(row.settings[setting]))


def panel_row(figure: Canvas, count: int) -> list[Axes]:
    """Return the axes of a row of panels."""
    return list(figure.subplots(1, count, squeeze=False)[0])


def shared_legend(figure: Canvas) -> None:
    """Draw one legend for all panels."""
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    columns = min(len(handles), 6)
    figure.legend(list(handles.values()), list(handles), loc="outside upper left", ncols=columns, frameon=False)


def log_axis(axes: Axes) -> None:
    """Make the vertical axis logarithmic, with plain numbers."""
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="y", which="minor", length=0)


def _error_axis(axes: Axes, values: Sequence[float]) -> None:
    """Draw grid lines, and use a logarithmic axis if the errors have a wide range."""
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    if min(values) > 0.0 and max(values) > _WIDE_RANGE * min(values):
        log_axis(axes)
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0, 8.0)))


def _error(row: ResultRow) -> str:
    return f"{error_text(row.summaries[0].mean)}{spread_text(row.summaries[0].spread)} %"
