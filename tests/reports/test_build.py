import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from driftlaw.errors import UsageError
from driftlaw.records import read_record
from driftlaw.reports import FORMATS, build_report
from tests.reports.example_records import make_record, write_record


@pytest.mark.parametrize("format", FORMATS)
def test_report_does_not_depend_on_the_order_of_records(format):
    records = [make_record("source", [45] * 15), make_record("law")]
    assert build_report(records, format) == build_report(records[::-1], format)


def test_gzipped_record_gives_the_same_report(tmp_path):
    record = make_record()
    plain = read_record(write_record(record, tmp_path / "a.jsonl"))
    zipped = read_record(write_record(record, tmp_path / "a.jsonl.gz"))
    assert build_report([plain], "md") == build_report([zipped], "md") == build_report([record], "md")


def test_unknown_format_suggests_the_closest_name():
    with pytest.raises(UsageError, match="Did you mean 'latex'"):
        build_report([make_record()], "latecks")


def test_torch_is_not_imported(tmp_path):
    write_record(make_record(), tmp_path / "a.jsonl")
    code = f"""
import sys
from pathlib import Path
from driftlaw.records import read_record
from driftlaw.reports import FORMATS, build_report, render_terminal
record = read_record(Path({str(tmp_path / "a.jsonl")!r}))
for format in FORMATS:
    build_report([record], format)
render_terminal([record])
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_import_does_not_load_matplotlib():
    code = "import sys, driftlaw.reports; assert 'matplotlib' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


HOSTILE = "[bold]x[/bold] \x1b[31m\x07\x9b2J\u202e <script>alert(1)</script> $\\input{a}$ |a| `b`\n\n# h\r"


def hostile_records():
    """Return records whose names try to control terminals, spreadsheets, pages and LaTeX."""
    domains = {HOSTILE: 20, "=cmd": 10}
    return [
        make_record("source", domains),
        make_record(
            f"={HOSTILE}",
            domains,
            settings={f"@{HOSTILE}": HOSTILE},
            header={"title": f"@{HOSTILE}", "model": {"name": f"+{HOSTILE}", "sha256": "0" * 64, "num_classes": 10}},
            stream={"dataset": {"name": f"-{HOSTILE}"}},
            path=Path(f"={HOSTILE}.jsonl"),
        ),
    ]


@pytest.mark.parametrize("format", FORMATS)
def test_text_in_records_controls_nothing(format):
    text = build_report(hostile_records(), format, command="driftlaw report \x1b[2J")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)
    assert "u001b[31m" in text.replace("\\", "").replace("textbackslash{}", "")
    if format == "html":
        assert "<script>alert" not in text
        assert "&lt;script&gt;alert" in text
    if format in ("md", "brief"):
        assert "<script>" not in text.replace("\\<", "")
        assert "\n# h" not in text
    if format == "latex":
        assert "\\input" not in text
    if format == "terminal":
        assert "[bold]" in text  # not read as markup
    if format == "json":
        assert HOSTILE in json.loads(text)["tables"][0]["domains"]


def test_cells_of_csv_files_are_no_formulas():
    rows = list(csv.reader(io.StringIO(build_report(hostile_records(), "csv"))))
    assert not [cell for row in rows for cell in row if cell.startswith(("=", "+", "@", "-", "\t", "\r"))]
    assert {cell[:2] for row in rows for cell in row if cell.startswith("'")} == {"'=", "'+", "'@", "'-"}


def test_latex_rows_may_start_with_a_bracket():
    records = [make_record("source"), make_record("law", header={"title": "[law]"})]
    assert "\n{}[law] &" in build_report(records, "latex")
