import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from driftlaw.reports import figures
from driftlaw.reports.tables import make_tables
from tests.reports.example_records import in_rounds, make_record

LAYERS = [
    f"stages.{stage}.{block}.{name}.weight" for stage in range(3) for block in range(4) for name in ("conv", "norm")
]


@pytest.fixture
def table():
    return make_tables([make_record("source", [45] * 15), make_record("law", [20] * 15, layers=LAYERS)])[0]


def texts(figure):
    return [
        "".join(element.itertext())
        for element in ElementTree.fromstring(figure.svg).iter()
        if element.tag.endswith("text")
    ]


def test_drawing_is_deterministic(table):
    for draw in (figures.draw_error_along_stream, figures.draw_cost):
        assert draw(table).svg == draw(table).svg
    assert figures.draw_layer_weights(table.ranked[0]).svg == figures.draw_layer_weights(table.ranked[0]).svg


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


def test_few_layers_are_all_named(table):
    labels = texts(figures.draw_layer_weights(table.ranked[0]))
    assert set(LAYERS) <= set(labels)
    assert {"stages.0", "stages.1", "stages.2"} <= set(labels)


def test_of_many_layers_every_third_is_named():
    many = [f"block{index // 30}.layer{index}.weight" for index in range(90)]
    labels = texts(figures.draw_layer_weights(make_tables([make_record(layers=many)])[0].rows[0]))
    assert len(set(many) & set(labels)) == 30
    assert {"block0", "block1", "block2"} <= set(labels)


def test_method_without_layer_weights_has_no_heat_map(table):
    assert figures.draw_layer_weights(table.baseline) is None


def test_long_heat_map_is_averaged():
    weights = np.arange(2 * 3001, dtype=float).reshape(2, 3001)
    fewer = figures._average_columns(weights)
    assert fewer.shape == (2, 1001)
    assert fewer[0, 0] == pytest.approx(1.0)
    assert fewer[1, -1] == pytest.approx(weights[1, -1])


def test_running_mean_of_a_constant():
    assert figures._running_mean(np.full(50, 7.0)) == pytest.approx(np.full(50, 7.0))


def test_special_characters_in_names_are_drawn_literally():
    record = make_record(header={"title": "$\\frac{</svg><script>"}, layers=["$x", "<b>", "--> y"])
    (table,) = make_tables([record])
    labels = texts(figures.draw_error_along_stream(table)) + texts(figures.draw_layer_weights(table.rows[0]))
    assert {"$\\frac{</svg><script>", "$x", "<b>", "--> y"} <= set(labels)


def test_unfinished_runs_are_labelled():
    (table,) = make_tables([make_record(finished=False, batches_done=7)])
    assert "LAW (unfinished)" in texts(figures.draw_error_along_stream(table))
    assert figures.draw_cost(table) is None


def test_drawing_does_not_change_matplotlib_settings(table):
    import matplotlib

    before = dict(matplotlib.rcParams)
    figures.draw_cost(table)
    assert dict(matplotlib.rcParams) == before
