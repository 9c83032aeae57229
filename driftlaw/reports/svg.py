"""SVG drawings with matplotlib: the same bytes for the same data, in the colors of the page they are placed in."""

import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from driftlaw.reports.result_table import SERIES_COLORS

# Matplotlib needs literal colors. These are placeholders that _use_css_variables replaces.
INK, FAINT, LINE = "#010203", "#010204", "#010205"
SERIES = [f"#0201{index:02x}" for index in range(SERIES_COLORS + 1)]  # the first is the source model
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)))
WIDTH = 10.5  # inches

CSS_COLORS = {INK: "currentColor", FAINT: "var(--faint, #667)", LINE: "var(--line, #ccd)"}
CSS_COLORS |= {color: f"var(--series-{index}, #47a)" for index, color in enumerate(SERIES)}
_STYLE = Path(__file__).with_name("report.mplstyle")


@contextmanager
def svg_figure(size: tuple[float, float], name: str) -> Iterator[tuple[Figure, Callable[[], str]]]:
    """Context manager that yields a matplotlib figure and a function that returns it as SVG.

    Args:
        size: Width and height in inches.
        name: Identifier from which element ids are derived; figures on one page need different names.
    """
    style: dict[Any, Any] = {**matplotlib.rcParamsDefault, **matplotlib.rc_params_from_file(_STYLE, False, False)}
    style |= {"svg.hashsalt": name, "backend": "agg"}
    with matplotlib.rc_context(style), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a glyph that DejaVu lacks is drawn by the browser
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)

        def to_svg() -> str:
            text = io.StringIO()
            figure.savefig(text, format="svg", transparent=True)
            return _use_css_variables(text.getvalue())

        yield figure, to_svg


def _use_css_variables(svg: str) -> str:
    """Keep the ``<svg>`` element without metadata, ids and style rules, and replace placeholder colors."""
    svg = svg[svg.index("<svg") :]
    for pattern, replacement in (
        (r"<metadata>.*?</metadata>", ""),
        (r'<g id="row-(\d+)"', r'<g data-row="\1"'),  # a page hides the lines of a row
        (r'<g id="[^"]*"', "<g"),
        (r'(<svg[^>]*?) width="[^"]*"', r"\1"),
        (r'(<svg[^>]*?) height="[^"]*"', r"\1"),
        (r"<defs>\s*<style.*?</style>\s*</defs>", ""),  # its rules would apply to the whole page
        (r"'?DejaVu Sans'?(, [^;\"]*)?", "inherit"),
    ):
        svg = re.sub(pattern, replacement, svg, flags=re.DOTALL)
    svg = svg.replace("<svg", '<svg aria-hidden="true" focusable="false" stroke-linejoin="round"', 1)
    for placeholder, color in CSS_COLORS.items():
        svg = svg.replace(placeholder, color)
    return svg
