import json
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from driftlaw.reports import figures
from driftlaw.reports.tables import make_tables
from tests.reports.drawings import rows_of, texts
from tests.reports.example_records import add_diagnostics, in_rounds, make_record


@pytest.fixture
def table():
    return make_tables([make_record("source", [45] * 15), make_record("law", [20] * 15)])[0]


def test_drawing_is_deterministic(table):
    for draw in (figures.draw_error_along_stream, figures.draw_cost):
        assert draw(table).svg == draw(table).svg


def test_colors_are_css_variables(table):
    for figure in (figures.draw_error_along_stream(table), figures.draw_cost(table)):
        assert not re.findall(r"#[0-9a-f]{6}\b", figure.svg)
        assert {"var(--series-0", "var(--series-1", "var(--faint"} <= set(re.findall(r"var\(--[\w-]+", figure.svg))


def test_stream_figure_names_domains_and_methods(table):
    labels = texts(figures.draw_error_along_stream(table))
    assert {"gaussian", "fog", "jpeg", "Source", "LAW"} <= set(labels)


def test_stream_with_many_segments_has_no_domain_names():
    errors = {f"domain_{index}": 10 for index in range(70)}
    figure = figures.draw_error_along_stream(make_tables([make_record("law", errors, batches_per_domain=1)])[0])
    assert "domain 3" not in texts(figure)


def test_repeating_stream_is_drawn_by_round():
    runs = [in_rounds(make_record(name, [40, 20, 30]), [0, 1, 2]) for name in ("source", "law")]
    figure = figures.draw_error_by_round(make_tables(runs)[0])
    assert {"Source", "LAW", "1", "2", "3", "round"} <= set(texts(figure))
    assert "LAW 40.0 to 30.0" in figure.description
    assert figure.svg == figures.draw_error_by_round(make_tables(runs)[0]).svg


def test_no_round_figure_for_one_round_or_unfinished_runs(table):
    assert figures.draw_error_by_round(table) is None
    begun = in_rounds(make_record("law", [40, 20], seed=3, finished=False, batches_done=3), [0, 1])
    assert figures.draw_error_by_round(make_tables([begun])[0]) is None
    ended = [in_rounds(make_record("law", [first, 20], seed=seed), [0, 1]) for seed, first in ((1, 40), (2, 20))]
    figure = figures.draw_error_by_round(make_tables([begun, *ended])[0])
    assert texts(figure).count("LAW") == 1
    assert "LAW 30.0 to 20.0" in figure.description


def test_long_labels_reduce_the_columns_of_the_legend():
    def columns(words):
        records = [make_record("law", settings={words: number}) for number in range(6)]
        figure = figures.draw_error_along_stream(make_tables(records)[0])
        elements = ElementTree.fromstring(figure.svg).iter("{http://www.w3.org/2000/svg}text")
        return len({element.get("x") for element in elements if "LAW" in (element.text or "")})

    assert columns("a") > columns("a" * 60) >= 1


def test_columns_are_averaged():
    weights = np.arange(2 * 3001, dtype=float).reshape(2, 3001)
    fewer = figures.average_columns(weights, 3)
    assert fewer.shape == (2, 1001)
    assert fewer[0, 0] == pytest.approx(1.0)
    assert fewer[1, -1] == pytest.approx(weights[1, -1])


def test_running_mean_of_a_constant():
    assert figures._running_mean(np.full(50, 7.0)) == pytest.approx(np.full(50, 7.0))


def test_special_characters_in_names_are_drawn_literally():
    (table,) = make_tables([make_record(header={"title": "$\\frac{</svg><script>"})])
    assert "$\\frac{</svg><script>" in texts(figures.draw_error_along_stream(table))


def test_unfinished_runs_are_labelled():
    (table,) = make_tables([make_record(finished=False, batches_done=7)])
    assert "LAW (unfinished)" in texts(figures.draw_error_along_stream(table))
    assert figures.draw_cost(table) is None


def test_drawing_does_not_change_matplotlib_settings(table):
    import matplotlib

    before = dict(matplotlib.rcParams)
    figures.draw_cost(table)
    assert dict(matplotlib.rcParams) == before


def test_every_line_belongs_to_a_row(table):
    for draw in (figures.draw_error_along_stream, figures.draw_cost):
        assert rows_of(draw(table)) == {"0", "1"}
    repeating = [in_rounds(make_record(name, [40, 20, 30]), [0, 1, 2]) for name in ("source", "law")]
    assert rows_of(figures.draw_error_by_round(make_tables(repeating)[0])) == {"0", "1"}


def test_hover_values_are_the_running_means(table):
    data = json.loads(figures.draw_error_along_stream(table).hover)
    assert [(line["row"], line["label"], line["color"]) for line in data["lines"]] == [
        (0, "Source", "var(--series-0, #47a)"),
        (1, "LAW", "var(--series-1, #47a)"),
    ]
    assert [set(line["values"]) for line in data["lines"]] == [{45.0}, {20.0}]
    assert data["names"][:2] == [[0, "gaussian"], [2, "shot"]]
    assert (data["unit"], data["step"], len(data["lines"][0]["values"])) == ("batch", 1, 30)
    assert 0 < data["left"] < 0.1 < 0.9 < data["right"] < 1


def test_hover_values_of_long_streams_are_averaged():
    (table,) = make_tables([make_record("law", {"fog": 20.0, "snow": 40.0}, batches_per_domain=1000)])
    data = json.loads(figures.draw_error_along_stream(table).hover)
    values = data["lines"][0]["values"]
    assert (data["step"], len(values)) == (3, 667)
    assert data["names"] == [[0, "fog"], [333, "snow"]]
    assert (values[0], values[-1]) == (20.0, 40.0)


def test_hover_values_of_an_unfinished_run_end_early():
    begun = make_record("tent", finished=False, batches_done=7)
    (table,) = make_tables([make_record("law"), begun])
    lines = {
        line["label"]: line["values"] for line in json.loads(figures.draw_error_along_stream(table).hover)["lines"]
    }
    assert (len(lines["TENT"]), len(lines["LAW"])) == (7, 30)


def test_hover_values_by_round():
    runs = [in_rounds(make_record(name, [40, 20, 30]), [0, 1, 2]) for name in ("source", "law")]
    data = json.loads(figures.draw_error_by_round(make_tables(runs)[0]).hover)
    assert (data["unit"], data["lines"][1]["values"]) == ("round", [40.0, 20.0, 30.0])


def test_diagnostics_are_drawn_if_there_are_any(table):
    assert figures.draw_diagnostics(table) == []
    (with_them,) = make_tables([add_diagnostics(make_record("source", [45] * 15)), make_record("law")])
    drawn = figures.draw_diagnostics(with_them)
    assert len(drawn) == 5
    assert all(rows_of(figure) == {"0"} for figure in drawn)  # LAW has none
    first = [json.loads(figure.hover)["lines"][0]["values"][0] for figure in drawn]
    assert first == [0.5, 3.0, 70.0, 80.0, 2.0]


def test_diagnostics_that_are_measured_on_some_batches_keep_their_value():
    (table,) = make_tables([add_diagnostics(make_record("norm", {"fog": 10.0}, batches_per_domain=8), every=4)])
    agreement = json.loads(figures.draw_diagnostics(table)[3].hover)["lines"][0]["values"]
    assert agreement == [80.0] * 4 + [60.0] * 4


def test_diagnostics_that_are_not_finite_are_left_out():
    record = add_diagnostics(make_record("norm", {"fog": 10.0}, batches_per_domain=3))
    record.batches[1]["facts"] |= {"entropy": None, "layer_distance": [None, 0.5]}
    drawn = figures.draw_diagnostics(make_tables([record])[0])
    assert json.loads(drawn[0].hover)["lines"][0]["values"][1] == 0.5  # of the batch before
    assert json.loads(drawn[4].hover)["lines"][0]["values"][1] > 2.0
