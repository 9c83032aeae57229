import subprocess
import sys

import pytest

from driftlaw.errors import UsageError
from driftlaw.records import read_record
from driftlaw.reports import FORMATS, build_report
from tests.reports.example_records import make_record, write_record


@pytest.mark.parametrize("format", FORMATS)
def test_the_same_records_give_the_same_bytes(format):
    records = [make_record("source", [45] * 15), make_record("law")]
    assert build_report(records, format) == build_report(records[::-1], format)


def test_a_gzipped_record_tells_the_same(tmp_path):
    record = make_record()
    plain = read_record(write_record(record, tmp_path / "a.jsonl"))
    zipped = read_record(write_record(record, tmp_path / "a.jsonl.gz"))
    assert build_report([plain], "md") == build_report([zipped], "md") == build_report([record], "md")


def test_an_unknown_format_names_the_nearest():
    with pytest.raises(UsageError, match="Did you mean 'latex'"):
        build_report([make_record()], "latecks")


def test_torch_is_never_imported(tmp_path):
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


def test_a_csv_does_not_wait_for_matplotlib():
    code = "import sys, driftlaw.reports; assert 'matplotlib' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
