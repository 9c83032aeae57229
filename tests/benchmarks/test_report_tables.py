"""Tests of benchmarks.report_tables."""

from __future__ import annotations

import json

import pytest

from benchmarks.report_tables import make_bench_tables, read_bench, render_bench_markdown, render_bench_text
from driftlaw.errors import DataError, UsageError
from tests.benchmarks import bench_records


def test_step_table_has_times_and_speedups():
    first, second = make_bench_tables(bench_records.step())
    assert (first.title, second.title) == ("wrn_10_1, batch size 8", "wrn_10_1, batch size 16")
    assert first.lines[2] == ("law", "5.00", "4.75 – 5.50", "6.00×", "–", "500.0", "0.17")


def test_memory_columns_are_optional():
    record = bench_records.step()
    for row in record["rows"]:
        del row["peak_bytes"]
    assert {len(line) for line in make_bench_tables(record)[0].lines} == {5}


@pytest.mark.parametrize("kind", bench_records.RECORDS)
def test_every_line_has_all_columns(kind):
    for table in make_bench_tables(bench_records.RECORDS[kind]()):
        assert {len(line) for line in table.lines} == {len(table.head)}


@pytest.mark.parametrize("kind", bench_records.RECORDS)
def test_text_has_device_and_skipped_variants(kind):
    text = render_bench_text(bench_records.RECORDS[kind]())
    assert "a <fast> machine, 2 threads, torch 2.13.0" in text
    assert "skipped: law, fast" in text


def test_roofline_text_has_measured_rates():
    text = render_bench_text(bench_records.roofline())
    assert "matrix product 0.40 TFLOP/s, convolution 0.30 TFLOP/s, copy 10.0 GB/s" in text
    assert "2.00×" in text


def test_markdown_has_one_table_per_case_and_the_command():
    text = render_bench_markdown([bench_records.step(), bench_records.memory()])
    assert text.count("| --- |") == 3
    assert "`python -m benchmarks step`" in text


def test_report_needs_records():
    with pytest.raises(UsageError, match="No benchmark records"):
        render_bench_markdown([])


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "other.json"
    path.write_text(json.dumps({"bench": "other"}))
    with pytest.raises(DataError, match="found kind other, expected one of step"):
        read_bench(path)
    path.write_text("[1, 2]")
    with pytest.raises(DataError, match="found kind None"):
        read_bench(path)
    path.write_text("{damaged")
    with pytest.raises(DataError, match="Cannot read"):
        read_bench(path)
