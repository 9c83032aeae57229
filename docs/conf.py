"""How the documentation is built: Sphinx, furo, Markdown; the reference pages are written from the code itself."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from reference_pages import write_pages  # noqa: E402

import driftlaw  # noqa: E402

project = "driftlaw"
author = "The driftlaw authors"
copyright = "2026, The driftlaw authors"  # Sphinx's own name for it
release = version = driftlaw.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
autodoc_typehints = "signature"
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"driftlaw {release}"
nitpicky = False

write_pages(HERE / "reference")
