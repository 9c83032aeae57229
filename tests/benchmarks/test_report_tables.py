"""Benchmarks as tables."""

from __future__ import annotations

import json

import pytest

from benchmarks.report_tables import make_bench_tables, read_bench, render_bench_markdown, render_bench_text
from driftlaw.errors import DataError, UsageError
from tests.reports import bench_records


def test_a_step_stands_beside_its_references_as_ratios():
    first, second = make_bench_tables(bench_records.step())
    assert (first.title, second.title) == ("wrn_10_1, batch 8", "wrn_10_1, batch 16")
    assert first.lines[2] == ("law", "5.00", "4.75 – 5.50", "6.00×", "–", "500.0", "0.17")


def test_without_memory_its_columns_are_left_out():
    record = bench_records.step()
    for row in record["rows"]:
        del row["peak_bytes"]
    assert {len(line) for line in make_bench_tables(record)[0].lines} == {5}


@pytest.mark.parametrize("kind", bench_records.RECORDS)
def test_every_line_has_a_cell_a_column(kind):
    for table in make_bench_tables(bench_records.RECORDS[kind]()):
        assert {len(line) for line in table.lines} == {len(table.head)}


@pytest.mark.parametrize("kind", bench_records.RECORDS)
def test_a_text_says_where_it_was_measured_and_what_was_left_out(kind):
    text = render_bench_text(bench_records.RECORDS[kind]())
    assert "a <fast> machine, 2 threads, torch 2.13.0" in text
    assert "left out: law, fast" in text


def test_the_rates_of_the_machine_stand_under_the_floor():
    text = render_bench_text(bench_records.floor())
    assert "matrix product 0.40, convolution 0.30 TFLOP a second, copy 10.0 GB a second" in text
    assert "2.00×" in text


def test_markdown_has_a_table_a_cell_and_the_command():
    text = render_bench_markdown([bench_records.step(), bench_records.memory()])
    assert text.count("| --- |") == 3
    assert "`driftlaw bench`" in text


def test_no_record_is_no_report():
    with pytest.raises(UsageError, match="no record"):
        render_bench_markdown([])


def test_what_is_no_benchmark_is_refused(tmp_path):
    path = tmp_path / "other.json"
    path.write_text(json.dumps({"bench": "corruptions"}))
    with pytest.raises(DataError, match="found corruptions, expected step"):
        read_bench(path)
    path.write_text("[1, 2]")
    with pytest.raises(DataError, match="found None"):
        read_bench(path)
    path.write_text("{torn")
    with pytest.raises(DataError, match="cannot read"):
        read_bench(path)
