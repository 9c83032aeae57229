"""Tests of benchmarks.report_page."""

from __future__ import annotations

import pytest

from benchmarks.report_page import TITLES, build_bench_report
from driftlaw.errors import UsageError
from tests.benchmarks import bench_records


def test_page_contains_every_record_escaped_and_is_reproducible():
    records = [make() for make in bench_records.RECORDS.values()]
    page = build_bench_report(records, "html", command="python -m benchmarks report step.json")
    assert page == build_bench_report(records, "html", command="python -m benchmarks report step.json")
    assert all(TITLES[kind] in page for kind in bench_records.RECORDS)
    assert "a &lt;fast&gt; machine" in page
    assert "a <fast> machine" not in page
    assert "http-equiv" in page
    assert "src=" not in page.replace("default-src", "").replace("style-src", "").replace("img-src", "")


def test_unknown_format_is_refused():
    with pytest.raises(UsageError, match="html, md or text"):
        build_bench_report([bench_records.step()], "latex")
