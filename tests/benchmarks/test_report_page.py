"""Benchmarks as a page."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from benchmarks.report_page import TITLES, build_bench_report
from driftlaw.cli import app
from driftlaw.errors import UsageError
from tests.reports import bench_records


def test_a_page_holds_every_record_escaped_and_the_same_every_time():
    records = [make() for make in bench_records.RECORDS.values()]
    page = build_bench_report(records, "html", command="driftlaw report step.json")
    assert page == build_bench_report(records, "html", command="driftlaw report step.json")
    assert all(title.replace("'", "&#39;") in page for title in TITLES.values())
    assert "a &lt;fast&gt; machine" in page
    assert "a <fast> machine" not in page
    assert "http-equiv" in page
    assert "src=" not in page.replace("default-src", "").replace("style-src", "").replace("img-src", "")


def test_other_formats_are_refused():
    with pytest.raises(UsageError, match="html or md"):
        build_bench_report([bench_records.step()], "latex")


def test_the_report_command_takes_the_record_of_a_benchmark(tmp_path):
    record = tmp_path / "step.json"
    record.write_text(json.dumps(bench_records.step()))
    done = CliRunner().invoke(app, ["report", str(record), "--out", str(tmp_path / "speed.html")])
    assert done.exit_code == 0, done.output
    assert "What a step costs" in (tmp_path / "speed.html").read_text(encoding="utf-8")
    told = CliRunner().invoke(app, ["report", str(record), "--format", "md"]).stdout
    assert "| law | 5.00 |" in told
