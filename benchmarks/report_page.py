"""Records of ``driftlaw bench`` as a document: one HTML file with figures and tables, or Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from benchmarks.report_tables import Record, bench_notes, make_bench_tables, render_bench_markdown
from driftlaw.errors import UsageError

TITLES = {
    "step": "What a step costs",
    "memory": "Peak memory of a step",
    "facts": "What recording facts costs",
    "floor": "How far a step stands above the floor",
    "scaling": "How a step's cost grows",
}


def build_bench_report(records: Sequence[Record], format: str, *, command: str | None = None) -> str:
    """Return a report of benchmarks; the same records and command give the same bytes.

    Args:
        records: what ``read_bench`` returned.
        format: ``html`` or ``md``.
        command: the command line that a reader can repeat.
    """
    if format == "md":
        return render_bench_markdown(records)
    if format != "html":
        raise UsageError(f"a benchmark is reported as html or md, asked for {format}: the record itself is JSON")
    from benchmarks.report_figures import draw_bench  # a Markdown table must not wait for matplotlib

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["svg"] = Markup  # our own drawing: matplotlib has escaped its text
    sections = [
        {
            "title": TITLES[record["bench"]],
            "pictures": draw_bench(record),
            "tables": make_bench_tables(record),
            "notes": bench_notes(record),
            "measured": record.get("rule") or record.get("measured") or record.get("memory_measured"),
            "command": record.get("command"),
        }
        for record in records
    ]
    return environment.get_template("bench.html").render(sections=sections, command=command)
