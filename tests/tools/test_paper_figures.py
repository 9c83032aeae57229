import re
import xml.etree.ElementTree as ElementTree

import pytest

from driftlaw.reports.published import compare_with_paper
from driftlaw.reports.tables import make_tables
from tests.reports.example_records import make_record
from tests.reports.layer_records import EARLY, FLAT, make_layer_record
from tools.results import paper_figures
from tools.results.layer_profiles import layer_profiles


def texts(picture):
    drawn = ElementTree.fromstring(picture.svg).iter()
    return ["".join(element.itertext()) for element in drawn if element.tag.endswith("text")]


def surgical(part, stage, tuned, error):
    settings = {"part": part, "stage": stage, "tuned": tuned}
    return make_record("surgical", [error] * 15, settings=settings, header={"title": "Surgical"})


def tuned_parts():
    records = [
        *(surgical("up_to", stage, "norm", 30 - stage) for stage in (1, 2, 3)),
        *(surgical("from", stage, "norm", 32 - stage) for stage in (3, 2)),
        *(surgical("up_to", stage, "all", 20 * stage) for stage in (1, 2, 3)),
        make_record("tent", [26] * 15),
        make_record("law", [19] * 15),
    ]
    return make_tables(records)[0]


def sharp(*domains):
    return layer_profiles(
        [make_layer_record(name, sharpness=[scale * value for value in EARLY]) for name, scale in domains],
        "layer_sharpness",
    )


def drawn():
    table = make_tables([make_record(name, [error] * 15) for name, error in [("law", 16), ("tent", 20), ("rmt", 14)]])[
        0
    ]
    sweep = make_tables(
        [make_record("law", [error] * 15, settings={"tau": tau}) for tau, error in [(0.0, 80), (0.6, 30), (1.0, 20)]]
    )
    weights = layer_profiles(
        [make_layer_record("gaussian_noise"), make_layer_record("defocus_blur", weights=EARLY)], "layer_weights"
    )
    met = sharp(("clean", 1), ("gaussian_noise", 3), ("defocus_blur", 2))
    return {
        "1a": paper_figures.draw_tuned_part(tuned_parts()),
        "1b": paper_figures.draw_error_against_flops(table),
        "3": paper_figures.draw_weights_along_network(weights),
        "4": paper_figures.draw_source_against_target(met),
        "5": paper_figures.draw_fisher_diagonal(met),
        "sweep": paper_figures.draw_sweep([compare_with_paper(item) for item in sweep], "tau", "τ"),
    }


@pytest.fixture(scope="module")
def pictures():
    return drawn()


def test_drawings_are_the_same_bytes_every_time_and_leave_their_colours_to_the_page(pictures):
    again = drawn()
    for name, picture in pictures.items():
        assert picture.svg == again[name].svg
        assert not re.findall(r"#0[0-9a-f]{5}\b", picture.svg)
        assert len(picture.svg) < 100_000


def test_the_tuned_part_is_drawn_by_stages_with_other_methods_as_levels(pictures):
    told = texts(pictures["1a"])
    assert {"norm layers, from the input on", "norm layers, from the output back", "TENT 26.0", "LAW 19.0"} <= set(told)
    assert "stages that learn, of 3" in told
    assert "all parameters of all stages up to 1, errs on 20.0 %" in pictures["1a"].caption


def test_error_against_flops_has_a_point_and_a_name_a_method(pictures):
    told = texts(pictures["1b"])
    assert {"LAW 16.0", "TENT 20.0", "RMT 14.0"} <= set(told)
    assert "RMT 14.0 % at 648.0 M" in pictures["1b"].description


def test_weights_are_drawn_by_corruption_and_network(pictures):
    told = texts(pictures["3"])
    assert {"cifar10-c, wrn_16_1", "stages.0", "stages.2"} <= set(told)
    assert any("Gaussian noise" in text for text in told)
    assert "defocus: 86 % of the weight in the first third" in pictures["3"].caption


def test_source_and_target_are_drawn_over_each_other(pictures):
    assert {"source (clean)", "Gaussian noise", "defocus blur"} <= set(texts(pictures["4"]))
    assert "while it adapted" in pictures["4"].caption
    still = layer_profiles(
        [make_layer_record(name, sharpness=FLAT, settings={"learning_rate": 1e-12}) for name in ("clean", "fog")],
        "layer_sharpness",
    )
    assert "as it was trained" in paper_figures.draw_source_against_target(still).caption


def test_the_fisher_diagonal_is_the_squared_weight_over_the_batches():
    (profile,) = sharp(("clean", 2.0))
    assert paper_figures.fisher_diagonal(profile) == pytest.approx([(2.0 * value) ** 2 / 4 for value in EARLY])


def test_a_sweep_shows_the_paper_beside_ours_where_it_has_figures():
    settings = {"learning_rate": 1e-3, "consistency_weight": 0.1}
    tables = make_tables(
        [make_record("law", [error] * 15, settings={**settings, "tau": tau}) for tau, error in [(0.6, 40), (1.0, 20)]]
    )
    told = texts(paper_figures.draw_sweep([compare_with_paper(table) for table in tables], "tau", "τ"))
    assert {"ours", "paper", "0.6", "1"} <= set(told)


def test_a_sweep_takes_the_rows_that_differ_in_nothing_else():
    rows = [({"tau": 0.6, "rate": 1}, 30), ({"tau": 1.0, "rate": 1}, 20), ({"tau": 0.8, "rate": 2}, 25)]
    (table,) = make_tables([make_record("law", [error] * 15, settings=settings) for settings, error in rows])
    assert [row.settings["tau"] for row in paper_figures.sweep_rows(table, "tau")] == [0.6, 1.0]


def test_nothing_is_drawn_of_records_that_do_not_tell():
    (table,) = make_tables([make_record("law")])
    assert paper_figures.draw_tuned_part(table) is None
    assert paper_figures.draw_error_against_flops(table) is None
    assert paper_figures.draw_sweep([compare_with_paper(table)], "tau", "τ") is None
    for draw in (
        paper_figures.draw_weights_along_network,
        paper_figures.draw_source_against_target,
        paper_figures.draw_fisher_diagonal,
    ):
        assert draw([]) is None


def test_names_of_near_points_do_not_cover_each_other():
    names = [("source", 31.0), ("norm", 30.0), ("tent", 20.0), ("law", 60.0)]
    (table,) = make_tables([make_record(name, [error] * 15) for name, error in names])
    rows = list(table.rows)
    sides = dict(zip([row.method for row in rows], paper_figures._sides(rows), strict=True))
    assert sides["source"] != sides["norm"]
    assert sides["tent"] == sides["law"] == (1, 1)
