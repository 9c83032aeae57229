"""Figures of benchmark records as SVG: bar charts of the cost of a step, line charts of its growth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import MaxNLocator

from benchmarks.report_tables import MEGA, Record, rows_by_case
from driftlaw.reports.document import Figure
from driftlaw.reports.result_table import SERIES_COLORS
from driftlaw.reports.svg import DASHES, FAINT, INK, SERIES, WIDTH, svg_figure

_BASELINES = ("forward", "plain_tent", "plain_law")
_LIGHT = ("#8791a3", "#d9820a", "#17907f", "#3557d6", "#c2255c", "#7a46d8", "#56850f", "#0b7ea3", "#9a5a32")
_DARK = ("#8a94a8", "#f2a541", "#3fc7b2", "#7f9bff", "#f2709c", "#b18cff", "#9ccc4f", "#4cc3e8", "#d39a72")


def draw_bench(record: Record) -> list[Figure]:
    """Return the figures of a record; empty for kinds without figures."""
    draw = _DRAWINGS.get(record["bench"])
    return list(draw(record)) if draw else []


def as_file(figure: Figure) -> str:
    """Return a figure as the contents of an SVG file, with the colors that a page would define."""
    light = _css_colors("#1a2130", "#5a6477", "#dde1e8", _LIGHT)
    dark = _css_colors("#e6e9f0", "#9ba5b8", "#2c3342", _DARK)
    style = f"<style>svg {{ {light} }} @media (prefers-color-scheme: dark) {{ svg {{ {dark} }} }}</style>"
    head, bracket, rest = figure.svg.partition(">")
    head = head.replace(' aria-hidden="true"', "")
    return f"{head}{bracket}\n{style}{rest}".rstrip() + "\n"


def _css_colors(ink: str, faint: str, line: str, series: Sequence[str]) -> str:
    numbered = " ".join(f"--series-{number}: {color};" for number, color in enumerate(series))
    return f"color: {ink}; --faint: {faint}; --line: {line}; font-family: sans-serif; {numbered}"


def _draw_steps(record: Record) -> Iterator[Figure]:
    for title, rows in rows_by_case(record):
        yield _bars(
            title,
            rows,
            "ms/step",
            [row["milliseconds"]["median"] for row in rows],
            _step_text,
            f"{title}: median time of a step over {record['rounds']} interleaved rounds on "
            f"{record['device']['name']}. Lines show the quartiles.",
            spans=[(row["milliseconds"]["lower_quartile"], row["milliseconds"]["upper_quartile"]) for row in rows],
        )
    if record["rows"] and "peak_bytes" in record["rows"][0]:
        yield from _draw_memory(record)


def _step_text(row: Record) -> str:
    ratio = row.get("times_faster_than_plain_law")
    against = "" if ratio is None or row["method"] == "plain_law" else f" · {ratio:.1f}× as fast as naive LAW"
    median = row["milliseconds"]["median"]
    return f"{median:.0f} ms{against}" if median >= 1000 else f"{median:.3g} ms{against}"


def _draw_memory(record: Record) -> Iterator[Figure]:
    for title, rows in rows_by_case(record):
        yield _bars(
            title,
            rows,
            "peak memory of a step, MB",
            [row["peak_bytes"] / MEGA for row in rows],
            _memory_text,
            f"{title}: peak memory of a step, each variant alone on {record['device']['name']}.",
        )


def _memory_text(row: Record) -> str:
    share = row["share_of_plain_law"]
    against = "" if share is None or row["method"] == "plain_law" else f" · {share:.2f} of naive LAW"
    megabytes = row["peak_bytes"] / MEGA
    return (f"{megabytes:.3g} MB" if megabytes < 1000 else f"{megabytes:,.0f} MB") + against


def _draw_diagnostics(record: Record) -> Iterator[Figure]:
    for title, rows in rows_by_case(record):
        yield _bars(
            title,
            rows,
            "ms/step with diagnostics",
            [row["with"]["median"] for row in rows],
            lambda row: f"{row['with']['median']:.3g} ms · {100 * row['cost']:+.1f} % for {row['numbers']} values",
            f"{title}: time of a step whose diagnostics are recorded, and the overhead.",
            spans=[(row["with"]["lower_quartile"], row["with"]["upper_quartile"]) for row in rows],
        )


def _draw_roofline(record: Record) -> Iterator[Figure]:
    for title, rows in rows_by_case(record):
        yield _bars(
            title,
            rows,
            "ms/step; the mark is the limit",
            [row["milliseconds"]["median"] for row in rows],
            lambda row: f"{row['milliseconds']['median']:.3g} ms · {row['times_above_floor']:.1f}× the limit",
            f"{title}: measured time of a step and its limit, the larger of operations and bytes over the rates of "
            f"{record['device']['name']}, measured in the same run.",
            marks=[row["floor_milliseconds"] for row in rows],
        )


def _bars(
    title: str,
    rows: Sequence[Record],
    heading: str,
    values: Sequence[float],
    written: Callable[[Record], str],
    caption: str,
    *,
    spans: Sequence[tuple[float, float]] | None = None,
    marks: Sequence[float] | None = None,
) -> Figure:
    """Draw one horizontal bar per row with its value and ratio; baselines are gray."""
    with svg_figure((WIDTH, 0.75 + 0.3 * len(rows)), f"{heading} {title}") as (figure, finish):
        axes = figure.add_subplot()
        axes.barh(range(len(rows)), values, height=0.62, color=[_bar_color(row, rows) for row in rows])
        ends = [max(value, *span) for value, span in zip(values, spans or [(0, 0)] * len(rows), strict=True)]
        for index, row in enumerate(rows):
            axes.annotate(
                written(row), (ends[index], index), xytext=(5, 0), textcoords="offset points", va="center", fontsize=8.5
            )
        for index, (low, high) in enumerate(spans or []):
            axes.plot([low, high], [index, index], color=INK, linewidth=1.0)
        for index, mark in enumerate(marks or []):
            axes.plot([mark, mark], [index - 0.4, index + 0.4], color=INK, linewidth=1.6)
        _finish_bars(axes, [row["label"] for row in rows], f"{title}: {heading}", max(ends))
        svg = finish()
    described = "; ".join(f"{row['label']} {written(row)}" for row in rows)
    return Figure(svg, caption, f"Bar chart, {title}, {heading}: {described}.")


def _finish_bars(axes: Axes, labels: Sequence[str], title: str, largest: float) -> None:
    axes.set_title(title, loc="left", fontsize=9, color=FAINT)
    axes.set_xlim(0, 1.32 * largest)
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.tick_params(axis="both", length=0)
    axes.tick_params(axis="y", labelcolor=INK)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)


def _bar_color(row: Record, rows: Sequence[Record]) -> str:
    """Return gray for a baseline, and otherwise one color per method."""
    if row["method"] in _BASELINES:
        return SERIES[0]
    methods = list(dict.fromkeys(other["method"] for other in rows if other["method"] not in _BASELINES))
    return SERIES[1 + methods.index(row["method"]) % SERIES_COLORS]


def _draw_scaling(record: Record) -> Iterator[Figure]:
    for curve in record["axes"]:
        yield _draw_curve(curve, record["device"]["name"])
    if record["stream"]:
        yield _draw_stream(record["stream"], record["device"]["name"])


def _draw_curve(curve: Record, where: str) -> Figure:
    name = curve["axis"].replace("_", " ")
    rows = curve["rows"]
    labels = list(dict.fromkeys(row["label"] for row in rows))
    lines = {label: [row for row in rows if row["label"] == label] for label in labels}
    ours = [label for label in labels if lines[label][0]["method"] not in _BASELINES]

    def draw(axes: Sequence[Axes]) -> None:
        for label, points in lines.items():
            values = [row["value"] for row in points]
            style = _line_style(points[0]["method"], ours.index(label) if label in ours else 0, label)
            axes[0].plot(values, [row["milliseconds"]["median"] for row in points], **style)
            axes[1].plot(values, [row["peak_bytes"] / MEGA for row in points], **style)

    note = f" {curve['note'][0].upper()}{curve['note'][1:]}." if curve["note"] else ""
    caption = f"Time and peak memory of a step over {name}, on {where}.{note}"
    ends = "; ".join(f"{label} {points[-1]['milliseconds']['median']:.3g} ms" for label, points in lines.items())
    described = f"Line charts of ms/step and peak memory over {name}. At the largest value: {ends}."
    return _two_panels(f"scaling {name}", name, draw, ("ms/step", "peak memory, MB"), caption, described)


def _draw_stream(entries: Sequence[Record], where: str) -> Figure:
    def draw(axes: Sequence[Axes]) -> None:
        for index, entry in enumerate(entries):
            batches = [window["batches"] for window in entry["windows"]]
            style = _line_style(entry["method"], index, entry["label"])
            axes[0].plot(batches, [window["milliseconds"]["median"] for window in entry["windows"]], **style)
            axes[1].plot(batches, [window["held_bytes"] / MEGA for window in entry["windows"]], **style)

    caption = f"Time of a step and memory between steps along one long stream, per window, on {where}."
    grown = "; ".join(
        f"{entry['label']} time ratio {entry['growth']['milliseconds_halves']:.2f} of the second half to the first, "
        f"memory ratio {entry['growth']['held_bytes']:.2f}"
        for entry in entries
    )
    described = f"Line charts of ms/step and memory between steps along a stream: {grown}."
    return _two_panels("scaling stream", "batches", draw, ("ms/step", "memory between steps, MB"), caption, described)


def _line_style(method: str, index: int, label: str) -> dict[str, Any]:
    is_baseline = method in _BASELINES
    color = SERIES[0] if is_baseline else SERIES[1 + index % SERIES_COLORS]
    dash = DASHES[_BASELINES.index(method) % len(DASHES)] if is_baseline else "-"
    return {"color": color, "linestyle": dash, "linewidth": 1.6, "marker": "o", "markersize": 3.0, "label": label}


def _two_panels(
    key: str,
    horizontal: str,
    draw: Callable[[Sequence[Axes]], None],
    titles: tuple[str, str],
    caption: str,
    described: str,
) -> Figure:
    with svg_figure((WIDTH, 3.2), key) as (figure, finish):
        panels = list(figure.subplots(1, 2))
        draw(panels)
        for axes, title in zip(panels, titles, strict=True):
            axes.set_title(title, loc="left", fontsize=9, color=FAINT)
            axes.set_xlabel(horizontal)
            axes.set_ylim(0, 1.08 * axes.get_ylim()[1])
            axes.set_xlim(0, None)
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
            axes.grid(axis="y")
            axes.set_axisbelow(True)
        _legend(figure, panels[0])
        svg = finish()
    return Figure(svg, caption, described)


def _legend(figure: Canvas, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=min(len(labels), 6), frameon=False, handlelength=3.2)


_DRAWINGS: dict[str, Callable[[Record], Iterator[Figure]]] = {
    "step": _draw_steps,
    "memory": _draw_memory,
    "facts": _draw_diagnostics,
    "floor": _draw_roofline,
    "scaling": _draw_scaling,
}
