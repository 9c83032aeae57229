"""Reports from run records: tables, figures and pages. The same records give the same bytes; torch is not imported."""

from driftlaw._deprecated import add_old_names
from driftlaw.reports.build import FORMATS, build_report, check_format, render_terminal
from driftlaw.reports.result_table import ResultTable
from driftlaw.reports.tables import make_tables

__all__ = [
    "FORMATS",
    "ResultTable",
    "build_report",
    "check_format",
    "make_tables",
    "render_terminal",
]

add_old_names(__name__)
