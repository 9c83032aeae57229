import subprocess
import sys

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
