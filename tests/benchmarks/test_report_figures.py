"""Tests of benchmarks.report_figures."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest

from benchmarks.report_figures import as_file, draw_bench
from tests.benchmarks import bench_records


def texts(svg):
    return ["".join(each.itertext()) for each in ElementTree.fromstring(svg).iter() if each.tag.endswith("text")]


@pytest.mark.parametrize("kind", bench_records.RECORDS)
def test_a_drawing_is_the_same_bytes_every_time_and_leaves_its_colours_to_the_page(kind):
    first, second = (draw_bench(bench_records.RECORDS[kind]()) for _ in range(2))
    assert first
    assert first == second
    for picture in first:
        assert not re.findall(r"#[0-9a-f]{6}\b", picture.svg)


def test_a_bar_says_its_milliseconds_and_its_ratio():
    times, _, memory, _ = draw_bench(bench_records.step())
    assert "5 ms · 6.0× as fast as naive LAW" in texts(times.svg)
    assert "30 ms" in texts(times.svg)
    assert "500 MB · 0.17 of naive LAW" in texts(memory.svg)
    assert "law 5 ms" in times.description


def test_a_roofline_figure_shows_the_ratio_of_step_and_bound():
    (picture,) = draw_bench(bench_records.roofline())
    assert "5 ms · 2.0× the limit" in texts(picture.svg)


def test_an_axis_and_a_stream_have_a_figure_each():
    axis, stream = draw_bench(bench_records.scaling())
    assert {"batch size", "ms/step", "peak memory, MB", "naive LAW", "law"} <= set(texts(axis.svg))
    assert "Model wrn_10_1." in axis.caption
    assert "memory between steps, MB" in texts(stream.svg)


def test_as_a_file_of_its_own_a_drawing_brings_its_colours():
    svg = as_file(draw_bench(bench_records.step())[0])
    assert svg.startswith("<svg")
    assert "--series-0: #8791a3" in svg
    ElementTree.fromstring(svg)
