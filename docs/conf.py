"""Sphinx configuration: furo theme, MyST Markdown; reference pages are generated from the code and the records."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from reference_pages import write_pages  # noqa: E402

import driftlaw  # noqa: E402

project = "driftlaw"
author = "The driftlaw authors"
copyright = "2026, The driftlaw authors"
release = version = driftlaw.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "mathtext_renderer"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
autodoc_typehints = "signature"
exclude_patterns = ["_build", "reference/method-*.md", "reference/methods-table.md", "reference/table-*.md"]
html_theme = "furo"
html_title = f"driftlaw {release}"
html_static_path = ["_static"]
html_css_files = ["manual.css"]
html_math_renderer = "mathtext"
nitpicky = False
smartquotes = False  # it turns the two dashes of an option into one

write_pages(HERE / "reference")
