"""Records in; tables, figures and pages out. The same records give the same bytes; torch is never imported."""

from driftlaw.reports.build import FORMATS, build_report, check_format
from driftlaw.reports.render_terminal import render_terminal
from driftlaw.reports.tables import Table, make_tables, report_notes

__all__ = ["FORMATS", "Table", "build_report", "check_format", "make_tables", "render_terminal", "report_notes"]
