import pytest

from driftlaw.reports import heat_maps
from driftlaw.reports.heat_maps import draw_diagnostic, draw_layer_weights
from driftlaw.reports.tables import make_tables
from tests.reports.drawings import texts
from tests.reports.example_records import add_diagnostics, make_record

LAYERS = [
    f"stages.{stage}.{block}.{name}.weight" for stage in range(3) for block in range(4) for name in ("conv", "norm")
]


@pytest.fixture
def table():
    return make_tables([make_record("source", [45] * 15), make_record("law", [20] * 15, layers=LAYERS)])[0]


def test_drawing_is_deterministic(table):
    assert draw_layer_weights(table.ranked[0]).svg == draw_layer_weights(table.ranked[0]).svg


def test_few_layers_are_all_named(table):
    labels = texts(draw_layer_weights(table.ranked[0]))
    assert set(LAYERS) <= set(labels)
    assert {"stages.0", "stages.1", "stages.2"} <= set(labels)


def test_of_many_layers_every_third_is_named():
    many = [f"block{index // 30}.layer{index}.weight" for index in range(90)]
    labels = texts(draw_layer_weights(make_tables([make_record(layers=many)])[0].rows[0]))
    assert len(set(many) & set(labels)) == 30
    assert {"block0", "block1", "block2"} <= set(labels)


def test_method_without_layer_weights_has_no_heat_map(table):
    assert draw_layer_weights(table.baseline) is None


def test_special_characters_in_names_are_drawn_literally():
    (table,) = make_tables([make_record(layers=["$x", "<b>", "--> y"])])
    assert {"$x", "<b>", "--> y"} <= set(texts(draw_layer_weights(table.rows[0])))


def test_class_shares_and_distances_have_heat_maps():
    (table,) = make_tables([add_diagnostics(make_record("law"))])
    shares = draw_diagnostic(table.rows[0], "class_shares")
    assert {"class 0", "class 1", "class 2"} <= set(texts(shares))
    assert "Largest on average: class 1." in shares.description
    distance = draw_diagnostic(table.rows[0], "layer_distance")
    assert {"conv.weight", "norm.weight"} <= set(texts(distance))
    assert "LAW, seed 1" in distance.caption


def test_values_stay_the_same_between_measured_batches(monkeypatch):
    drawn = []
    monkeypatch.setattr(heat_maps, "average_columns", lambda values, width: drawn.append(values) or values)
    record = add_diagnostics(make_record("norm", {"fog": 10.0}, batches_per_domain=6), every=3)
    draw_diagnostic(make_tables([record])[0].rows[0], "layer_distance")
    assert drawn[0].tolist() == [[0.01, 0.01, 0.01, 0.04, 0.04, 0.04], [0.03, 0.03, 0.03, 0.06, 0.06, 0.06]]


def test_row_without_the_diagnostic_has_no_heat_map(table):
    assert draw_diagnostic(table.rows[0], "class_shares") is None
