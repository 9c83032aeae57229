"""Sphinx extension: formulas as SVG images drawn by matplotlib, so that the manual needs no network and no LaTeX."""

from __future__ import annotations

import base64
import html
import io
from typing import Any

import matplotlib
from docutils import nodes
from matplotlib.font_manager import FontProperties
from matplotlib.mathtext import math_to_image
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

SIZE = 12.5


def image(formula: str, size: float = SIZE) -> str:
    """Return an <img> element for a formula, aligned with the baseline of the text around it."""
    buffer = io.BytesIO()
    try:
        with matplotlib.rc_context({"mathtext.fontset": "cm", "svg.hashsalt": "driftlaw"}):
            depth = math_to_image(f"${formula}$", buffer, prop=FontProperties(size=size), dpi=72, format="svg")
    except ValueError as problem:
        raise ExtensionError(f"matplotlib cannot draw the formula {formula!r}: {problem}") from problem
    data = base64.b64encode(buffer.getvalue()).decode()
    alt = html.escape(formula)
    style = f"vertical-align:{-depth:.2f}pt"
    return f'<img class="formula" src="data:image/svg+xml;base64,{data}" alt="{alt}" title="{alt}" style="{style}">'


def visit_inline(translator: Any, node: nodes.math) -> None:
    """Write a formula inside a paragraph."""
    translator.body.append(image(" ".join(node.astext().split())))
    raise nodes.SkipNode


def visit_block(translator: Any, node: nodes.math_block) -> None:
    """Write a formula on a line of its own."""
    formula = image(" ".join(node.astext().split()), SIZE * 1.15)
    translator.body.append(f'<p style="text-align:center;overflow-x:auto">{formula}</p>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer."""
    app.add_html_math_renderer("mathtext", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
