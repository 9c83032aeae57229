"""The paper's figures 1a, 1b, 3, 4 and 5, and its ablations as curves, drawn from records as SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from driftlaw.reports.document import Figure
from driftlaw.reports.figures import constant_segments, layer_stages, series_style
from driftlaw.reports.format import error_text, flops_text, short_name, spread_text, value_text
from driftlaw.reports.published import Comparison
from driftlaw.reports.result_table import SERIES_COLORS, ResultRow, ResultTable
from driftlaw.reports.svg import DASHES, FAINT, INK, LINE, SERIES, WIDTH, svg_figure
from tools.results.layer_profiles import BLUR, CLEAN, NOISE, Profile, by_network, seeds_of

SURGICAL = "surgical"
_TUNED = {"norm": "norm layers", "all": "all parameters"}
_COLOURS = {CLEAN: SERIES[0], NOISE: SERIES[3], BLUR: SERIES[1]}
_NAMES = {CLEAN: "source (clean)", NOISE: "Gaussian noise", BLUR: "defocus blur"}
_STANDING_STILL = 1e-9  # a rate that moves nothing in float32
_WIDE_RANGE = 4.0  # beyond it a linear axis would press all small errors into one line


# --- figure 1a: error against the tuned part -------------------------------------------------------------------------


def draw_tuned_part(table: ResultTable) -> Figure | None:
    """Draw the error of surgical tuning against how many stages learn, other methods as level lines (Figure 1a)."""
    rows = [row for row in table.rows if row.finished]
    surgical = [row for row in rows if row.method == SURGICAL]
    if not surgical:
        return None
    stages = max(int(row.settings["stage"]) for row in surgical)
    lines: dict[tuple[str, str], list[ResultRow]] = {}
    for row in surgical:
        lines.setdefault((str(row.settings["tuned"]), str(row.settings["part"])), []).append(row)
    with svg_figure((WIDTH * 0.72, 3.6), f"tuned part {table.protocol.key}") as (figure, finish):
        axes = figure.add_subplot()
        for number, (key, members) in enumerate(sorted(lines.items(), reverse=True)):
            points = sorted((_stages_tuned(row, stages), row) for row in members if row.summaries[0].mean is not None)
            _draw_points(axes, [place for place, _ in points], [row for _, row in points], number, _part_name(*key))
        levels = [row for row in rows if row.method != SURGICAL]
        for turn, row in enumerate(levels):
            _draw_level(axes, row, turn)
        axes.set(xlabel=f"stages that learn, of {stages}", ylabel="error, %", xlim=(0.85, stages + 0.75))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        _error_axis(axes, [row.summaries[0].mean or 0.0 for row in rows])
        figure.legend(loc="outside upper left", ncols=2, frameon=False, handlelength=3.2)
        svg = finish()
    best = min(surgical, key=lambda row: row.summaries[0].mean or 0.0)
    caption = (
        f"Error against the part of the network that learns, {table.protocol.name}. Level lines: methods that choose "
        f"for themselves. The best part, {_part(best)}, errs on {_figure_of(best)}."
    )
    told = "; ".join(f"{row.label} {_figure_of(row)}" for row in rows)
    return Figure(svg, caption, f"Line chart of mean error against the number of stages that learn: {told}.")


def _stages_tuned(row: ResultRow, stages: int) -> int:
    stage = int(row.settings["stage"])
    return {"up_to": stage, "from": stages - stage + 1}.get(str(row.settings["part"]), 1)


def _part_name(tuned: str, part: str) -> str:
    return f"{_TUNED[tuned]}, " + {"up_to": "from the input on", "from": "from the output back", "stage": "alone"}[part]


def _part(row: ResultRow) -> str:
    where = {"up_to": "all stages up to", "from": "all stages from", "stage": "stage"}[str(row.settings["part"])]
    return f"{_TUNED[str(row.settings['tuned'])]} of {where} {row.settings['stage']}"


def _draw_points(axes: Axes, places: Sequence[float], rows: Sequence[ResultRow], number: int, label: str) -> None:
    means = [row.summaries[0].mean or 0.0 for row in rows]
    spreads = [row.summaries[0].spread or 0.0 for row in rows]
    axes.errorbar(
        places,
        means,
        yerr=spreads if any(spreads) else None,
        color=SERIES[1 + number % SERIES_COLORS],
        linestyle=DASHES[number % 2],
        linewidth=1.6,
        marker="o",
        markersize=4.0,
        capsize=2.5,
        label=label,
    )


def _draw_level(axes: Axes, row: ResultRow, turn: int) -> None:
    mean = row.summaries[0].mean
    if mean is None:
        return
    axes.axhline(mean, color=INK if row.method == "law" else FAINT, linewidth=1.2, linestyle=DASHES[turn % 2 + 1])
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


def _error_axis(axes: Axes, values: Sequence[float]) -> None:
    """Give errors that lie far apart a logarithmic axis with plain numbers."""
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    if min(values) > 0.0 and max(values) > _WIDE_RANGE * min(values):
        _powers_of_ten(axes)
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0, 8.0)))


def _figure_of(row: ResultRow) -> str:
    return f"{error_text(row.summaries[0].mean)}{spread_text(row.summaries[0].spread)} %"


# --- figure 1b: error against FLOPs ----------------------------------------------------------------------------------


def draw_error_against_flops(table: ResultTable) -> Figure | None:
    """Draw one point a method: its mean error against the operations of a whole step an image (Figure 1b)."""
    rows = [row for row in table.rows if row.finished and row.cost.step_flops and row.summaries[0].mean is not None]
    if len(rows) < 2:
        return None
    with svg_figure((WIDTH * 0.72, 3.6), f"flops {table.protocol.key}") as (figure, finish):
        axes = figure.add_subplot()
        for row, side in zip(rows, _sides(rows), strict=True):
            _draw_method(axes, table, row, side)
        axes.set_xscale("log")
        axes.set(xlabel="floating-point operations of a step, an image", ylabel=f"error ({table.summary_names[0]}), %")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: flops_text(value)))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.margins(x=0.14, y=0.12)
        _error_axis(axes, [row.summaries[0].mean or 0.0 for row in rows])
        svg = finish()
    caption = (
        f"Error against the real cost of a step, forward and backward, {table.protocol.name}. Hollow: needs source "
        "data. The paper's own figure counts forward passes alone."
    )
    told = "; ".join(f"{row.label} {_figure_of(row)} at {flops_text(row.cost.step_flops)}" for row in rows)
    return Figure(svg, caption, f"Scatter chart of mean error against operations of a step: {told}.")


def _name_of(row: ResultRow) -> str:
    return f"{row.label} {error_text(row.summaries[0].mean)}"


def _sides(rows: Sequence[ResultRow]) -> list[tuple[int, int]]:
    """Return on which side of its point each name goes, right or left and above or below, clear of names before it.

    Places are reckoned in points of the drawing, roughly: the axes are some 430 wide and 190 high.
    """
    spots = [(math.log10(row.cost.step_flops or 1.0), row.summaries[0].mean or 0.0) for row in rows]
    (left, right), (low, high) = ((min(axis), max(axis)) for axis in zip(*spots, strict=True))
    points = [(430.0 * (x - left) / (right - left or 1.0), 190.0 * (y - low) / (high - low or 1.0)) for x, y in spots]
    taken: list[tuple[float, float, float, float]] = [(x - 4, y - 4, x + 4, y + 4) for x, y in points]
    chosen = []
    for row, (x, y) in zip(rows, points, strict=True):
        boxes = {side: _box(x, y, 5.2 * len(_name_of(row)), side) for side in ((1, 1), (1, -1), (-1, 1), (-1, -1))}
        free = [side for side, box in boxes.items() if not any(_overlap(box, other) for other in taken)]
        side = free[0] if free else (1, 1)
        taken.append(boxes[side])
        chosen.append(side)
    return chosen


def _box(x: float, y: float, width: float, side: tuple[int, int]) -> tuple[float, float, float, float]:
    start = x + 7 if side[0] > 0 else x - 7 - width
    base = y + 5 if side[1] > 0 else y - 12
    return (start, base, start + width, base + 9)


def _overlap(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _draw_method(axes: Axes, table: ResultTable, row: ResultRow, side: tuple[int, int]) -> None:
    flops, mean = row.cost.step_flops or 0.0, row.summaries[0].mean or 0.0
    colour = series_style(table, row)["color"]
    axes.errorbar(
        [flops],
        [mean],
        yerr=row.summaries[0].spread,
        color=colour,
        marker="o",
        markersize=7.0,
        markerfacecolor="none" if row.needs_train_data else colour,
        markeredgewidth=1.4,
        capsize=2.5,
        linestyle="none",
    )
    axes.annotate(
        _name_of(row),
        (flops, mean),
        xytext=(7 * side[0], 5 if side[1] > 0 else -12),
        textcoords="offset points",
        ha="left" if side[0] > 0 else "right",
        fontsize=8.5,
        color=INK,
    )


# --- ablations: error against a setting ------------------------------------------------------------------------------


def draw_sweep(comparisons: Sequence[Comparison], setting: str, name: str) -> Figure | None:
    """Draw error against one setting, a panel a table, the paper's figures beside ours (Tables 4, 5, 9 and 10)."""
    panels = [(item, sweep_rows(item.table, setting)) for item in comparisons]
    panels = [(item, rows) for item, rows in panels if len(rows) > 1]
    if not panels:
        return None
    key = " ".join(item.table.protocol.key for item, _ in panels)
    told = []
    with svg_figure((WIDTH, 3.2), f"sweep {setting} {key}") as (figure, finish):
        for axes, (item, rows) in zip(_panels(figure, len(panels)), panels, strict=True):
            values = [row.settings[setting] for row in rows]
            _draw_points(axes, range(len(rows)), rows, 2, "ours")
            theirs = {
                id(line.row): line.published.mean
                for line in item.rows
                if line.published and not line.setting_differences
            }
            known = [(place, theirs[id(row)]) for place, row in enumerate(rows) if id(row) in theirs]
            axes.plot(*zip(*known, strict=True), **_THEIRS) if known else None
            axes.set_xticks(range(len(rows)), [f"{value:g}" for value in values])
            axes.set_title(item.table.protocol.name, loc="left", fontsize=8.5, color=FAINT)
            axes.set(xlabel=name, ylabel="error, %")
            _error_axis(axes, [*(row.summaries[0].mean or 0.0 for row in rows), *(mean for _, mean in known)])
            told.append(
                f"{item.table.protocol.name}: "
                + "; ".join(f"{value:g} {_figure_of(row)}" for value, row in zip(values, rows, strict=True))
            )
        _legend(figure)
        svg = finish()
    caption = f"Error against {name}; whiskers are the standard deviation over seeds."
    return Figure(svg, caption, f"Line charts of mean error against {name}. {' '.join(told)}.")


_THEIRS: dict[str, Any] = {
    "color": FAINT,
    "linestyle": DASHES[1],
    "linewidth": 1.2,
    "marker": "s",
    "markersize": 3.0,
    "label": "paper",
}


def sweep_rows(table: ResultTable, setting: str) -> list[ResultRow]:
    """Return the finished rows that tell a setting, the rest of their settings alike, by its value."""
    told = [row for row in table.rows if row.finished and isinstance(row.settings.get(setting), int | float)]
    groups: dict[str, list[ResultRow]] = {}
    for row in told:
        rest = value_text({name: value for name, value in row.settings.items() if name != setting})
        groups.setdefault(rest, []).append(row)
    largest = max(groups.values(), key=len, default=[])
    return sorted(largest, key=lambda row: float(row.settings[setting]))


def _panels(figure: Canvas, count: int) -> list[Axes]:
    return list(figure.subplots(1, count, squeeze=False)[0])


def _legend(figure: Canvas) -> None:
    """Draw one legend for all panels, every name once."""
    named: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    figure.legend(list(named.values()), list(named), loc="outside upper left", ncols=min(len(named), 6), frameon=False)


# --- figures 3, 4 and 5: what layers are worth -----------------------------------------------------------------------


def draw_weights_along_network(profiles: Sequence[Profile]) -> Figure | None:
    """Draw scaled layer weights along the network, a row a corruption, a column a dataset (Figure 3)."""
    columns = {place: met for place, met in by_network(profiles).items() if NOISE in met or BLUR in met}
    if not columns:
        return None
    shown = [domain for domain in (NOISE, BLUR) if any(domain in met for met in columns.values())]
    with svg_figure((WIDTH, 0.7 + 2.0 * len(shown)), f"weights {' '.join(columns)}") as (figure, finish):
        grid = figure.subplots(len(shown), len(columns), squeeze=False, sharey=True)
        for down, domain in enumerate(shown):
            for across, (place, met) in enumerate(columns.items()):
                axes = grid[down, across]
                if domain in met:
                    _draw_profile(axes, met[domain], met[domain].values)
                    _draw_stages(axes, met[domain].layers, named=down == 0)
                axes.set_ylim(0.0, 1.05)
                axes.set_ylabel(f"{_NAMES[domain]}\nweight" if across == 0 else "")
                axes.set_xlabel("layer, from input to output" if down == len(shown) - 1 else "")
                if down == 0:
                    axes.set_title(place, loc="left", fontsize=9, color=FAINT, pad=14)
        svg = finish()
    used = [profile for met in columns.values() for profile in met.values()]
    caption = (
        "LAW's weight of every layer (a layer is a parameter tensor) after the last batch of one corruption alone, "
        f"seed {seeds_of(used)}. {_shares(used)}"
    )
    return Figure(svg, caption, f"Bar charts of layer weights along the network. {_shares(used)}")


def _shares(profiles: Sequence[Profile]) -> str:
    told = [
        f"{profile.place}, {short_name(profile.domain)}: {100 * profile.early_share:.0f} % of the weight in the first "
        f"third, evenness {profile.evenness:.2f}"
        for profile in profiles
    ]
    return "; ".join(told) + "."


def draw_source_against_target(profiles: Sequence[Profile]) -> Figure | None:
    """Draw unscaled weights of clean images and of corruptions over each other, a panel a network (Figure 4)."""
    panels = {place: met for place, met in by_network(profiles).items() if CLEAN in met and len(met) > 1}
    if not panels:
        return None
    with svg_figure((WIDTH, 3.4), f"unscaled {' '.join(panels)}") as (figure, finish):
        for axes, (place, met) in zip(_panels(figure, len(panels)), panels.items(), strict=True):
            for domain in _in_order(met):
                layers = np.arange(len(met[domain].values))
                axes.plot(layers, met[domain].values, linewidth=1.2, **_line(domain))
            _powers_of_ten(axes)
            _draw_stages(axes, met[CLEAN].layers, named=True)
            axes.set_title(place, loc="left", fontsize=9, color=FAINT, pad=14)
            axes.set(xlabel="layer, from input to output", ylabel="weight before scaling", xlim=(0, len(layers) - 1))
            axes.grid(axis="y")
        _legend(figure)
        svg = finish()
    used = [profile for met in panels.values() for profile in met.values()]
    caption = (
        f"LAW's weights before the min-max scaler, {_whose(used)} (a layer is a parameter tensor; "
        f"{used[0].steps} batches, seed {seeds_of(used)}). {_middles(used)}"
    )
    return Figure(svg, caption, f"Line chart of unscaled layer weights, source and target. {_middles(used)}")


def _whose(profiles: Sequence[Profile]) -> str:
    """Say whether the network moved while its layers were weighed."""
    rates = [record.settings.get("learning_rate", 1.0) for profile in profiles for record in profile.records]
    still = max(rates) <= _STANDING_STILL
    return "of the network as it was trained" if still else "of the network while it adapted"


def _middles(profiles: Sequence[Profile]) -> str:
    told = [f"{profile.place}, {_named(profile.domain)} {np.median(profile.values):.3g}" for profile in profiles]
    return f"Median over layers: {'; '.join(told)}."


def draw_fisher_diagonal(profiles: Sequence[Profile]) -> Figure | None:
    """Draw the mean of every layer's Fisher diagonal, a panel a domain, a row a network (Figure 5)."""
    rows = {place: met for place, met in by_network(profiles).items() if len(met) > 1}
    if not rows:
        return None
    across = _in_order({domain: None for met in rows.values() for domain in met})
    with svg_figure((WIDTH, 0.7 + 2.3 * len(rows)), f"diagonal {' '.join(rows)}") as (figure, finish):
        grid = figure.subplots(len(rows), len(across), squeeze=False, sharey="row")
        for down, (place, met) in enumerate(rows.items()):
            floor = _floor([fisher_diagonal(profile) for profile in met.values()])
            for place_of, domain in enumerate(across):
                axes = grid[down, place_of]
                if domain in met:
                    _draw_profile(axes, met[domain], fisher_diagonal(met[domain]), floor=floor)
                    _draw_stages(axes, met[domain].layers, named=down == 0)
                _powers_of_ten(axes)
                axes.set_ylabel(f"{place}\ndiagonal of the Fisher" if place_of == 0 else "")
                axes.set_xlabel("layer, from input to output" if down == len(rows) - 1 else "")
                if down == 0:
                    axes.set_title(_named(domain), loc="left", fontsize=9, color=FAINT, pad=14)
        svg = finish()
    used = [profile for met in rows.values() for profile in met.values()]
    told = "; ".join(
        f"{profile.place}, {_named(profile.domain)} {np.median(fisher_diagonal(profile)):.2e}" for profile in used
    )
    caption = (
        "Diagonal of the Fisher information, the mean over the entries of a layer and over batches: the squared weight "
        f"before scaling over {used[0].steps} batches, seed {seeds_of(used)}. Median over layers: {told}."
    )
    return Figure(svg, caption, f"Bar charts of the Fisher diagonal a layer. Median over layers: {told}.")


def fisher_diagonal(profile: Profile) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the mean diagonal a layer and batch: Eq. 5 squared, and the sum of Eq. 4 over its batches."""
    return np.asarray(profile.values**2 / profile.steps)


def _in_order(domains: Mapping[str, Any]) -> list[str]:
    known = [domain for domain in (CLEAN, NOISE, BLUR) if domain in domains]
    return known + [domain for domain in domains if domain not in known]


def _named(domain: str) -> str:
    return _NAMES.get(domain, short_name(domain))


def _line(domain: str) -> dict[str, Any]:
    return {"color": _COLOURS.get(domain, SERIES[4]), "label": _named(domain)}


def _draw_profile(
    axes: Axes, profile: Profile, values: np.ndarray[Any, np.dtype[np.float64]], *, floor: float = 0.0
) -> None:
    colour = _COLOURS.get(profile.domain, SERIES[4])
    edges = np.arange(len(values) + 1) - 0.5
    axes.stairs(np.maximum(values, floor), edges, fill=True, color=colour, baseline=floor)
    axes.set_xlim(-0.5, len(values) - 0.5)


def _floor(all_values: Sequence[np.ndarray[Any, np.dtype[np.float64]]]) -> float:
    """Return where bars on a logarithmic axis stand: half of the smallest value, for an axis has no zero."""
    together = np.concatenate(all_values)
    return float(together[together > 0.0].min(initial=together.max())) / 2.0


def _powers_of_ten(axes: Axes) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="y", which="minor", length=0)


def _draw_stages(axes: Axes, layers: Sequence[str], *, named: bool) -> None:
    """Draw a line where a stage of the network begins, its name above."""
    stages = layer_stages(layers)
    for start, stop in constant_segments(stages):
        if start:
            axes.axvline(start - 0.5, color=LINE, linewidth=0.8, zorder=0.5)
        if named and stages[start] and stop - start > 0.06 * len(layers):
            axes.text(
                (start + stop - 1) / 2,
                1.01,
                stages[start],
                transform=axes.get_xaxis_transform(),
                ha="center",
                va="bottom",
                fontsize=7.2,
                color=FAINT,
            )
