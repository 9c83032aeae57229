"""Heat maps of a report: layer weights of LAW, class shares, and distance from the source model per layer."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm

from driftlaw.reports.document import Figure
from driftlaw.reports.figures import Array, average_columns, constant_segments, draw_domains
from driftlaw.reports.format import LABELS
from driftlaw.reports.protocol import protocol_key
from driftlaw.reports.result_table import ResultRow
from driftlaw.reports.svg import FAINT, WIDTH, svg_figure

LAYER_WEIGHTS = "layer_weights"
_MAX_COLUMNS = 1200  # more steps are averaged, so that the page stays small
_MAX_NAMES = 40


def draw_layer_weights(row: ResultRow) -> Figure | None:
    """Draw the weight of every layer at every step; None if the method does not record ``layer_weights``."""
    bar = "layer weight: fraction of the learning rate (square-root scale)"
    if (heat_map := _draw_heat_map(row, LAYER_WEIGHTS, bar, "layer")) is None:
        return None
    svg, weights, names = heat_map
    caption = (
        f"{row.label}, seed {row.first.seed}: weight of each of its {len(names)} parameter groups, from input to "
        f"output, per step. Over the whole stream, the median weight is {np.median(weights):.3f}, and "
        f"{100 * np.mean(weights > 0.5):.0f} % of the weights are above 0.5."
    )
    top = ", ".join(names[index] for index in np.argsort(-weights.mean(axis=1), kind="stable")[:3])
    return Figure(svg, caption, f"Heat map of layer weights, layers by steps. Largest on average: {top}.")


def draw_diagnostic(row: ResultRow, name: str) -> Figure | None:
    """Draw a vector diagnostic that ``labels.toml`` describes; None if the row does not have it."""
    texts = LABELS["heat_maps"][name]
    if (heat_map := _draw_heat_map(row, name, texts["bar"], texts["label"])) is None:
        return None
    svg, values, names = heat_map
    top = names[int(np.argmax(np.nan_to_num(values).mean(axis=1)))]
    description = f"Heat map: {texts['value']}. Largest on average: {top}."
    return Figure(svg, f"{row.label}, seed {row.first.seed}: {texts['value']}, per batch.", description)


def _draw_heat_map(row: ResultRow, name: str, bar_label: str, label: str) -> tuple[str, Array, list[str]] | None:
    """Draw a vector diagnostic of the first run; batches without it keep the values of the batch before.

    Return the drawing, the values of shape (values, measured batches) and their names.
    """
    record = row.first
    values = np.array(record.diagnostics(name), dtype=float).T
    if values.size == 0 or values.ndim != 2:
        return None
    names = record.diagnostic_labels(name)
    if len(names) != len(values):
        names = [f"{label} {index}" for index in range(len(values))]
    measured = np.cumsum([name in line["facts"] for line in record.batches]) - 1
    columns = values[:, np.maximum(measured, 0)]
    largest = float(np.nanmax(values, initial=1e-12))
    size = (WIDTH, min(9.0, 1.6 + 0.135 * max(10, len(names))))
    with svg_figure(size, f"{name} {row.label} {protocol_key(record)}") as (canvas, to_svg):
        axes = canvas.add_subplot()
        extent = (0.0, float(columns.shape[1]), float(len(names)), 0.0)
        scale: dict[str, Any] = {"cmap": "magma", "norm": PowerNorm(0.5, vmin=0.0, vmax=largest)}
        pixels = average_columns(columns, math.ceil(columns.shape[1] / _MAX_COLUMNS))
        image = axes.imshow(pixels, aspect="auto", interpolation="none", extent=extent, **scale)
        _draw_names(axes, names)
        draw_domains(axes, record, over_image=True)
        axes.set_xlabel("batch")
        bar = canvas.colorbar(image, ax=axes, location="bottom", shrink=0.35, aspect=40, pad=0.02)
        ticks = [tick for tick in (0.0, 0.01, 0.1, 0.25, 0.5, 1.0) if tick <= largest]
        bar.set_ticks(ticks, labels=[f"{tick:g}" for tick in ticks])
        bar.set_label(bar_label)
        bar.outline.set_visible(False)
        return to_svg(), values, names


def _draw_names(axes: Axes, names: Sequence[str]) -> None:
    """Write the names of at most 40 layers on the left, and the stages of the model on the right."""
    shown = range(0, len(names), math.ceil(len(names) / _MAX_NAMES))
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
