"""Tests of tools.results.table_figures and tools.results.layer_figures."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from driftlaw.reports.published import compare_with_paper
from driftlaw.reports.tables import make_tables
from tests.reports.example_records import make_record
from tests.reports.layer_records import EARLY, FLAT, make_layer_record
from tools.results import layer_figures, table_figures
from tools.results.layer_profiles import fisher_diagonal, layer_profiles


def texts(figure):
    elements = ElementTree.fromstring(figure.svg).iter()
    return ["".join(element.itertext()) for element in elements if element.tag.endswith("text")]


def surgical(part, stage, tuned, error):
    settings = {"part": part, "stage": stage, "tuned": tuned}
    return make_record("surgical", [error] * 15, settings=settings, header={"title": "Surgical"})


def adapted_parts():
    records = [
        *(surgical("up_to", stage, "norm", 30 - stage) for stage in (1, 2, 3)),
        *(surgical("from", stage, "norm", 32 - stage) for stage in (3, 2)),
        *(surgical("up_to", stage, "all", 20 * stage) for stage in (1, 2, 3)),
        make_record("tent", [26] * 15),
        make_record("law", [19] * 15),
    ]
    return make_tables(records)[0]


def importance_profiles(*domains):
    return layer_profiles(
        [make_layer_record(name, sharpness=[scale * value for value in EARLY]) for name, scale in domains],
        "layer_sharpness",
    )


def draw_all():
    table = make_tables([make_record(name, [error] * 15) for name, error in [("law", 16), ("tent", 20), ("rmt", 14)]])[
        0
    ]
    sweep = make_tables(
        [make_record("law", [error] * 15, settings={"tau": tau}) for tau, error in [(0.0, 80), (0.6, 30), (1.0, 20)]]
    )
    weights = layer_profiles(
        [make_layer_record("gaussian_noise"), make_layer_record("defocus_blur", weights=EARLY)], "layer_weights"
    )
    profiles = importance_profiles(("clean", 1), ("gaussian_noise", 3), ("defocus_blur", 2))
    return {
        "1a": table_figures.draw_adapted_part(adapted_parts()),
        "1b": table_figures.draw_error_and_flops(table),
        "3": layer_figures.draw_layer_weights(weights),
        "4": layer_figures.draw_source_and_target(profiles),
        "5": layer_figures.draw_fisher_diagonal(profiles),
        "sweep": table_figures.draw_sweep([compare_with_paper(item) for item in sweep], "tau", "τ"),
    }


@pytest.fixture(scope="module")
def figures():
    return draw_all()


def test_figures_are_reproducible_and_use_the_colors_of_the_page(figures):
    again = draw_all()
    for name, figure in figures.items():
        assert figure.svg == again[name].svg
        assert not re.findall(r"#0[0-9a-f]{5}\b", figure.svg)
        assert len(figure.svg) < 100_000


def test_adapted_part_has_curves_and_horizontal_lines(figures):
    labels = texts(figures["1a"])
    assert {
        "normalisation layers, from the input",
        "normalisation layers, from the output",
        "TENT 26.0",
        "LAW 19.0",
    } <= set(labels)
    assert "adapted stages, of 3" in labels
    assert "all parameters of all stages up to 1, has an error of 20.0 %" in figures["1a"].caption


def test_error_and_flops_has_one_labelled_point_per_method(figures):
    labels = texts(figures["1b"])
    assert {"LAW 16.0", "TENT 20.0", "RMT 14.0"} <= set(labels)
    assert "RMT 14.0 % at 648.0 M" in figures["1b"].description


def test_layer_weights_per_corruption_and_model(figures):
    labels = texts(figures["3"])
    assert {"cifar10-c, wrn_16_1", "stages.0", "stages.2"} <= set(labels)
    assert any("Gaussian noise" in text for text in labels)
    assert "defocus: 86 % of the weight in the first third" in figures["3"].caption


def test_source_and_target_are_in_one_panel(figures):
    assert {"source (clean)", "Gaussian noise", "defocus blur"} <= set(texts(figures["4"]))
    assert "during adaptation" in figures["4"].caption
    unchanged = layer_profiles(
        [make_layer_record(name, sharpness=FLAT, settings={"learning_rate": 1e-12}) for name in ("clean", "fog")],
        "layer_sharpness",
    )
    assert "of the source model" in layer_figures.draw_source_and_target(unchanged).caption


def test_fisher_diagonal_is_the_squared_importance_per_batch():
    (profile,) = importance_profiles(("clean", 2.0))
    assert fisher_diagonal(profile) == pytest.approx([(2.0 * value) ** 2 / 4 for value in EARLY])


def test_sweep_shows_the_papers_values():
    settings = {"learning_rate": 1e-3, "consistency_weight": 0.1}
    tables = make_tables(
        [make_record("law", [error] * 15, settings={**settings, "tau": tau}) for tau, error in [(0.6, 40), (1.0, 20)]]
    )
    labels = texts(table_figures.draw_sweep([compare_with_paper(table) for table in tables], "tau", "τ"))
    assert {"ours", "paper", "0.6", "1"} <= set(labels)


def test_sweep_uses_rows_that_differ_only_in_the_setting():
    rows = [({"tau": 0.6, "rate": 1}, 30), ({"tau": 1.0, "rate": 1}, 20), ({"tau": 0.8, "rate": 2}, 25)]
    (table,) = make_tables([make_record("law", [error] * 15, settings=settings) for settings, error in rows])
    assert [row.settings["tau"] for row in table_figures.sweep_rows(table, "tau")] == [0.6, 1.0]


def test_figures_without_data_are_none():
    (table,) = make_tables([make_record("law")])
    assert table_figures.draw_adapted_part(table) is None
    assert table_figures.draw_error_and_flops(table) is None
    assert table_figures.draw_sweep([compare_with_paper(table)], "tau", "τ") is None
    for draw in (
        layer_figures.draw_layer_weights,
        layer_figures.draw_source_and_target,
        layer_figures.draw_fisher_diagonal,
    ):
        assert draw([]) is None


def test_labels_of_close_points_do_not_overlap():
    names = [("source", 31.0), ("norm", 30.0), ("tent", 20.0), ("law", 60.0)]
    (table,) = make_tables([make_record(name, [error] * 15) for name, error in names])
    rows = list(table.rows)
    sides = dict(zip([row.method for row in rows], table_figures.label_sides(rows), strict=True))
    assert sides["source"] != sides["norm"]
    assert sides["tent"] == sides["law"] == (1, 1)
