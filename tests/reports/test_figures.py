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


def texts(picture):
    return [
        "".join(element.itertext())
        for element in ElementTree.fromstring(picture.svg).iter()
        if element.tag.endswith("text")
    ]


def test_a_drawing_is_the_same_bytes_every_time(table):
    for draw in (figures.draw_error_along_stream, figures.draw_cost):
        assert draw(table).svg == draw(table).svg
    assert figures.draw_layer_weights(table.ranked[0]).svg == figures.draw_layer_weights(table.ranked[0]).svg


def test_a_drawing_leaves_its_colours_to_the_page(table):
    for picture in (figures.draw_error_along_stream(table), figures.draw_cost(table)):
        assert not re.findall(r"#[0-9a-f]{6}\b", picture.svg)
        assert {"var(--series-0", "var(--series-1", "var(--faint"} <= set(re.findall(r"var\(--[\w-]+", picture.svg))


def test_the_stream_names_every_domain_and_method(table):
    told = texts(figures.draw_error_along_stream(table))
    assert {"gaussian", "fog", "jpeg", "Source", "LAW"} <= set(told)


def test_a_stream_that_changes_all_the_time_is_drawn_without_names():
    errors = {f"domain_{index}": 10 for index in range(70)}
    picture = figures.draw_error_along_stream(make_tables([make_record("law", errors, batches_a_domain=1)])[0])
    assert "domain 3" not in texts(picture)


def test_a_stream_that_comes_round_is_drawn_by_round():
    runs = [in_rounds(make_record(name, [40, 20, 30]), [0, 1, 2]) for name in ("source", "law")]
    picture = figures.draw_error_by_round(make_tables(runs)[0])
    assert {"Source", "LAW", "1", "2", "3", "round"} <= set(texts(picture))
    assert "LAW 40.0 to 30.0" in picture.description
    assert picture.svg == figures.draw_error_by_round(make_tables(runs)[0]).svg


def test_a_stream_of_one_round_or_an_unfinished_one_is_not(table):
    assert figures.draw_error_by_round(table) is None
    begun = in_rounds(make_record("law", [40, 20], seed=3, finished=False, batches_done=3), [0, 1])
    assert figures.draw_error_by_round(make_tables([begun])[0]) is None
    ended = [in_rounds(make_record("law", [first, 20], seed=seed), [0, 1]) for seed, first in ((1, 40), (2, 20))]
    picture = figures.draw_error_by_round(make_tables([begun, *ended])[0])
    assert texts(picture).count("LAW") == 1
    assert "LAW 30.0 to 20.0" in picture.description


def test_long_labels_make_a_legend_of_fewer_columns():
    def columns(words):
        records = [make_record("law", settings={words: number}) for number in range(6)]
        picture = figures.draw_error_along_stream(make_tables(records)[0])
        elements = ElementTree.fromstring(picture.svg).iter("{http://www.w3.org/2000/svg}text")
        return len({element.get("x") for element in elements if "LAW" in (element.text or "")})

    assert columns("a") > columns("a" * 60) >= 1


def test_all_layers_are_named_where_they_are_few(table):
    told = texts(figures.draw_layer_weights(table.ranked[0]))
    assert set(LAYERS) <= set(told)
    assert {"stages.0", "stages.1", "stages.2"} <= set(told)


def test_many_layers_are_thinned_out():
    many = [f"block{index // 30}.layer{index}.weight" for index in range(90)]
    told = texts(figures.draw_layer_weights(make_tables([make_record(layers=many)])[0].rows[0]))
    assert len(set(many) & set(told)) == 30
    assert {"block0", "block1", "block2"} <= set(told)


def test_a_method_without_the_fact_has_no_heat_map(table):
    assert figures.draw_layer_weights(table.baseline) is None


def test_a_long_heat_map_is_averaged_not_cut():
    weights = np.arange(2 * 3001, dtype=float).reshape(2, 3001)
    fewer = figures._fewer_columns(weights)
    assert fewer.shape == (2, 1001)
    assert fewer[0, 0] == pytest.approx(1.0)
    assert fewer[1, -1] == pytest.approx(weights[1, -1])


def test_the_running_mean_of_a_constant_is_that_constant():
    assert figures._running_mean(np.full(50, 7.0)) == pytest.approx(np.full(50, 7.0))


def test_names_with_dollars_and_angles_are_drawn_as_they_stand():
    record = make_record(header={"title": "$\\frac{</svg><script>"}, layers=["$x", "<b>", "--> y"])
    (table,) = make_tables([record])
    told = texts(figures.draw_error_along_stream(table)) + texts(figures.draw_layer_weights(table.rows[0]))
    assert {"$\\frac{</svg><script>", "$x", "<b>", "--> y"} <= set(told)


def test_unfinished_runs_are_dotted_and_said_to_be():
    (table,) = make_tables([make_record(finished=False, batches_done=7)])
    assert "LAW (unfinished)" in texts(figures.draw_error_along_stream(table))
    assert figures.draw_cost(table) is None


def test_drawing_leaves_the_callers_style_alone(table):
    import matplotlib

    before = dict(matplotlib.rcParams)
    figures.draw_cost(table)
    assert dict(matplotlib.rcParams) == before
