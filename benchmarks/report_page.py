"""Benchmark records as a document: one HTML file with figures and tables, Markdown, or plain text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from benchmarks.report_tables import (
    Record,
    bench_notes,
    make_bench_tables,
    render_bench_markdown,
    render_bench_text,
)
from driftlaw.errors import UsageError

TITLES = {
    "step": "Time and memory of a step",
    "memory": "Peak memory of a step",
    "facts": "Overhead of recording diagnostics",
    "floor": "Roofline of a step",
    "scaling": "Scaling of a step",
    "corruptions": "Speed of corruptions",
    "corruptions-full": "Time to corrupt a whole benchmark",
    "errors": "Error of the naive implementations and of driftlaw",
    "batch-sizes": "Error by batch size",
    "compare": "Step times of two checkouts",
}


def build_bench_report(records: Sequence[Record], format: str, *, command: str | None = None) -> str:
    """Return a report of benchmarks. The same records and command give the same bytes.

    Args:
        records: records returned by ``read_bench``.
        format: ``html``, ``md`` or ``text``.
        command: command line that generates the report.
    """
    if format == "text":
        return "\n\n".join(map(render_bench_text, records)) + "\n"
    if format == "md":
        return render_bench_markdown(records)
    if format != "html":
        raise UsageError(f"Unknown format '{format}'. Use --format html, md or text.")
    from benchmarks.report_figures import draw_bench  # matplotlib is only needed for HTML

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["svg"] = Markup  # matplotlib has escaped the text
    sections = [
        {
            "title": TITLES[record["bench"]],
            "figures": draw_bench(record),
            "tables": make_bench_tables(record),
            "notes": bench_notes(record),
            "measured": record.get("rule") or record.get("measured") or record.get("memory_measured"),
            "command": record.get("command"),
        }
        for record in records
    ]
    return environment.get_template("bench.html").render(sections=sections, command=command)
