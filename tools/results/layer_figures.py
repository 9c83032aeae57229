"""The paper's Figures 3, 4 and 5 about layers, drawn from records as SVG."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes

from driftlaw.reports.document import Figure
from driftlaw.reports.figures import constant_segments
from driftlaw.reports.format import short_name
from driftlaw.reports.heat_maps import layer_stages
from driftlaw.reports.svg import FAINT, LINE, SERIES, WIDTH, svg_figure
from tools.results.layer_profiles import BLUR, CLEAN, NOISE, Array, Profile, by_model, fisher_diagonal, seeds_of
from tools.results.table_figures import log_axis, panel_row, shared_legend

_COLORS = {CLEAN: SERIES[0], NOISE: SERIES[3], BLUR: SERIES[1]}
_NAMES = {CLEAN: "source (clean)", NOISE: "Gaussian noise", BLUR: "defocus blur"}
_NO_UPDATE = 1e-9  # a learning rate that changes nothing in float32


def draw_layer_weights(profiles: Sequence[Profile]) -> Figure | None:
    """Draw layer weights along the model, one row per corruption and one column per dataset (Figure 3)."""
    columns = {name: domains for name, domains in by_model(profiles).items() if NOISE in domains or BLUR in domains}
    if not columns:
        return None
    shown = [domain for domain in (NOISE, BLUR) if any(domain in domains for domains in columns.values())]
    with svg_figure((WIDTH, 0.7 + 2.0 * len(shown)), f"weights {' '.join(columns)}") as (figure, finish):
        grid = figure.subplots(len(shown), len(columns), squeeze=False, sharey=True)
        for row, domain in enumerate(shown):
            for column, (name, domains) in enumerate(columns.items()):
                axes = grid[row, column]
                if domain in domains:
                    _draw_profile(axes, domains[domain], domains[domain].values)
                    _draw_stages(axes, domains[domain].layers, named=row == 0)
                axes.set_ylim(0.0, 1.05)
                axes.set_ylabel(f"{_NAMES[domain]}\nweight" if column == 0 else "")
                axes.set_xlabel("layer, from input to output" if row == len(shown) - 1 else "")
                if row == 0:
                    axes.set_title(name, loc="left", fontsize=9, color=FAINT, pad=14)
        svg = finish()
    used = [profile for domains in columns.values() for profile in domains.values()]
    shares = "; ".join(
        f"{profile.name}, {short_name(profile.domain)}: {100 * profile.early_share:.0f} % of the weight in the first "
        f"third of the layers, evenness {profile.evenness:.2f}"
        for profile in used
    )
    caption = (
        "LAW's weight of every layer (a layer is a parameter tensor) after the last batch of a stream with one "
        f"corruption, seed {seeds_of(used)}. {shares}."
    )
    return Figure(svg, caption, f"Bar charts of layer weights along the model. {shares}.")


def draw_source_and_target(profiles: Sequence[Profile]) -> Figure | None:
    """Draw the layer importance on clean and on corrupted images, one panel per model (Figure 4)."""
    panels = {name: domains for name, domains in by_model(profiles).items() if CLEAN in domains and len(domains) > 1}
    if not panels:
        return None
    with svg_figure((WIDTH, 3.4), f"unscaled {' '.join(panels)}") as (figure, finish):
        for axes, (name, domains) in zip(panel_row(figure, len(panels)), panels.items(), strict=True):
            for domain in _ordered(domains):
                layers = np.arange(len(domains[domain].values))
                axes.plot(layers, domains[domain].values, linewidth=1.2, color=_color(domain), label=_name(domain))
            log_axis(axes)
            _draw_stages(axes, domains[CLEAN].layers, named=True)
            axes.set_title(name, loc="left", fontsize=9, color=FAINT, pad=14)
            axes.set(xlabel="layer, from input to output", ylabel="importance", xlim=(0, len(layers) - 1))
            axes.grid(axis="y")
        shared_legend(figure)
        svg = finish()
    used = [profile for domains in panels.values() for profile in domains.values()]
    rates = [record.settings.get("learning_rate", 1.0) for profile in used for record in profile.records]
    model = "of the source model" if max(rates) <= _NO_UPDATE else "of the model during adaptation"
    medians = "; ".join(f"{profile.name}, {_name(profile.domain)} {np.median(profile.values):.3g}" for profile in used)
    caption = (
        f"Layer importance before min-max scaling, {model} (a layer is a parameter tensor; {used[0].steps} batches, "
        f"seed {seeds_of(used)}). Median over layers: {medians}."
    )
    description = f"Line chart of layer importance on source and target images. Median over layers: {medians}."
    return Figure(svg, caption, description)


def draw_fisher_diagonal(profiles: Sequence[Profile]) -> Figure | None:
    """Draw the mean Fisher diagonal of every layer, one panel per domain and one row per model (Figure 5)."""
    rows = {name: domains for name, domains in by_model(profiles).items() if len(domains) > 1}
    if not rows:
        return None
    shown = _ordered({domain: None for domains in rows.values() for domain in domains})
    with svg_figure((WIDTH, 0.7 + 2.3 * len(rows)), f"diagonal {' '.join(rows)}") as (figure, finish):
        grid = figure.subplots(len(rows), len(shown), squeeze=False, sharey="row")
        for row, (name, domains) in enumerate(rows.items()):
            values = np.concatenate([fisher_diagonal(profile) for profile in domains.values()])
            base = float(values[values > 0.0].min(initial=values.max())) / 2.0  # a logarithmic axis has no zero
            for column, domain in enumerate(shown):
                axes = grid[row, column]
                if domain in domains:
                    _draw_profile(axes, domains[domain], fisher_diagonal(domains[domain]), base=base)
                    _draw_stages(axes, domains[domain].layers, named=row == 0)
                log_axis(axes)
                axes.set_ylabel(f"{name}\nFisher diagonal" if column == 0 else "")
                axes.set_xlabel("layer, from input to output" if row == len(rows) - 1 else "")
                if row == 0:
                    axes.set_title(_name(domain), loc="left", fontsize=9, color=FAINT, pad=14)
        svg = finish()
    used = [profile for domains in rows.values() for profile in domains.values()]
    medians = "; ".join(
        f"{profile.name}, {_name(profile.domain)} {np.median(fisher_diagonal(profile)):.2e}" for profile in used
    )
    caption = (
        "Diagonal of the Fisher information, averaged over the entries of a layer and over batches: the squared layer "
        f"importance divided by {used[0].steps} batches, seed {seeds_of(used)}. Median over layers: {medians}."
    )
    return Figure(svg, caption, f"Bar charts of the Fisher diagonal per layer. Median over layers: {medians}.")


def _ordered(domains: Iterable[str]) -> list[str]:
    names = list(domains)
    known = [domain for domain in (CLEAN, NOISE, BLUR) if domain in names]
    return known + [domain for domain in names if domain not in known]


def _name(domain: str) -> str:
    return _NAMES.get(domain, short_name(domain))


def _color(domain: str) -> str:
    return _COLORS.get(domain, SERIES[4])


def _draw_profile(axes: Axes, profile: Profile, values: Array, *, base: float = 0.0) -> None:
    edges = np.arange(len(values) + 1) - 0.5
    axes.stairs(np.maximum(values, base), edges, fill=True, color=_color(profile.domain), baseline=base)
    axes.set_xlim(-0.5, len(values) - 0.5)


def _draw_stages(axes: Axes, layers: Sequence[str], *, named: bool) -> None:
    """Draw a line at the start of every stage of the model, with the name of the stage above."""
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
