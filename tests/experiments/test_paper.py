"""The paper's experiments: what each varies, on what, and that every cell of it could be made."""

from __future__ import annotations

import json
from functools import partial

import pytest

from driftlaw.errors import DataError, UsageError
from driftlaw.experiments import EXPERIMENTS, Cell, parse_seeds, plan_experiment, plan_run
from driftlaw.experiments.paper import read_tuned
from driftlaw.methods import registered_methods
from driftlaw.settings import parse
from driftlaw.streams import StreamSettings

NAMES = [f"table{number}" for number in range(1, 11)] + ["fig1a", "fig1b", "fig3", "fig4", "fig5", "stress"]


def plan(name: str, dataset: str = "cifar10-c", **more) -> list[Cell]:
    return plan_experiment(name, datasets=[dataset], seeds=[1], **more)


def values(cells: list[Cell], setting: str) -> list[float]:
    return [cell.settings.get(setting) for cell in cells]


def test_there_is_a_name_for_every_table_and_figure():
    assert sorted(EXPERIMENTS) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_cell_has_valid_settings_and_a_record_of_its_own(name):
    experiment = EXPERIMENTS[name]
    cells = plan_experiment(name, datasets=experiment.possible, seeds=parse_seeds(experiment.seeds))
    assert len({cell.file_name for cell in cells}) == len(cells)
    for cell in cells:
        parse(registered_methods()[cell.method].Config, cell.settings, where=cell.title)
        parse(StreamSettings, cell.stream, where=cell.title)
        assert cell.experiment == name
        json.dumps([dict(cell.settings), dict(cell.stream), dict(cell.model)])


def test_the_first_table_is_the_preset_itself():
    alike = {cell.method: cell.file_name for cell in plan_run("cifar10-c")}
    cells = plan("table1")
    assert [cell.method for cell in cells] == [
        *("source", "norm", "tent", "adacontrast", "cotta", "gtta", "rmt", "law"),
    ]
    assert all(cell.file_name == alike[cell.method] for cell in cells)


def test_the_papers_grids_are_run():
    assert values(plan("table4"), "consistency_weight") == [0.0, 0.01, 0.1, 1.0, 10.0, 100.0]
    assert values(plan("table5"), "tau") == [0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2]
    assert values(plan("table10"), "tau")[:7] == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    assert values(plan("table9"), "fisher_decay") == [0.0, 0.3, 0.6, 0.9, None]


@pytest.mark.parametrize("name", ["table3", "table4", "table5", "table9", "table10", "fig1a", "table6"])
def test_the_row_with_the_papers_settings_is_the_same_cell_in_every_experiment(name):
    (law,) = plan("table1", methods=["law"])
    assert law.file_name in [cell.file_name for cell in plan(name)]


def test_gradual_streams_and_other_networks():
    assert {cell.stream["schedule"] for cell in plan("table2")} == {"gradual"}
    assert [len({cell.model["weights"] for cell in plan_experiment(f"table{n}", seeds=[1])}) for n in (6, 7, 8)] == [
        *(4, 3, 3),
    ]


def test_figures_of_weights_take_one_domain_each_and_the_network_as_it_was_trained():
    assert [cell.stream["corruptions"] for cell in plan("fig3", "cifar100-c")] == [["gaussian_noise"], ["defocus_blur"]]
    assert values(plan("fig3", "cifar100-c"), "tau") == [1.0, 1.0]
    cells = plan("fig4")
    assert [cell.stream["corruptions"] for cell in cells] == [["clean"], ["gaussian_noise"], ["defocus_blur"]]
    assert all(cell.settings["more_facts"] and cell.settings["learning_rate"] < 1e-9 for cell in cells)
    assert [cell.file_name for cell in plan("fig5")] == [cell.file_name for cell in cells]


def test_surgery_has_the_rate_of_tent():
    (tent,) = plan("fig1a", methods=["tent"])
    assert {cell.settings["learning_rate"] for cell in plan("fig1a", methods=["surgical"])} == {
        tent.settings["learning_rate"]
    }


def test_stress_goes_through_every_kind_of_stream():
    streams = [cell.stream for cell in plan("stress", methods=["law"])]
    assert [stream["rounds"] for stream in streams if stream["schedule"] == "recurring"] == [10]
    assert any(stream["schedule"] == "mixed" for stream in streams)
    assert any(stream.get("order") == "dirichlet" for stream in streams)
    assert any(stream.get("corruptions") == ["clean"] for stream in streams)
    assert [stream["batch_size"] for stream in streams if "limit" in stream] == [1, 4, 16, 64, 200]


def test_a_limit_never_asks_for_more_images_than_the_benchmark_takes():
    assert {cell.stream["limit"] for cell in plan("table1", "imagenet-c")} == {5000}
    assert {cell.stream["limit"] for cell in plan("table1", "imagenet-c", limit=9000)} == {5000}
    assert {cell.stream["limit"] for cell in plan("table1", limit=40)} == {40}
    assert {cell.stream["limit"] for cell in plan("stress", limit=40)} == {40}


@pytest.mark.parametrize(
    ("name", "more", "told"),
    [
        ("tabel1", {}, "Did you mean 'table1'"),
        ("table6", {"datasets": ["cifar100-c"]}, r"Valid names: cifar10-c\.$"),
        ("table1", {"datasets": ["cifar10c"]}, "Did you mean 'cifar10-c'"),
        ("table4", {"methods": ["lew"]}, "Did you mean 'law'"),
    ],
)
def test_what_an_experiment_does_not_have_is_told(name, more, told):
    with pytest.raises(UsageError, match=told):
        plan_experiment(name, seeds=[1], **more)


@pytest.mark.parametrize("limit", [0, -5])
def test_a_limit_that_leaves_no_image_is_refused(limit):
    with pytest.raises(UsageError, match=f"--limit {limit}: expected a number of images"):
        plan_experiment("table1", seeds=[1], limit=limit)


# --- LAW tuned on held-out corruptions -------------------------------------------------------------------------------


def test_law_gets_a_second_row_where_it_was_tuned(tmp_path):
    (tmp_path / "cifar10-c.json").write_text(json.dumps({"settings": {"learning_rate": 5e-4, "tau": 1.3}}))
    for name, rows in [("table1", 2), ("table2", 2), ("table3", 2), ("stress", 18), ("table4", 6)]:
        assert len(plan(name, methods=["law"], tuning=tmp_path)) == rows
    paper, tuned = plan("table1", methods=["law"], tuning=tmp_path)
    assert (paper.settings["tau"], tuned.settings["tau"]) == (1.0, 1.3)
    assert tuned.settings["consistency_weight"] == paper.settings["consistency_weight"]
    assert "held-out" in tuned.label
    assert len(plan("table1", "cifar100-c", methods=["law"], tuning=tmp_path)) == 1


def test_settings_that_come_out_as_the_papers_are_one_row(tmp_path):
    (tmp_path / "cifar10-c.json").write_text(json.dumps({"settings": {"tau": 1.0}}))
    assert len(plan("table1", methods=["law"], tuning=tmp_path)) == 1


def test_a_search_that_is_not_over_has_chosen_nothing(tmp_path):
    (tmp_path / "cifar10-c.json").write_text(json.dumps({"settings": {"tau": 1.3}, "finished": False}))
    assert read_tuned(tmp_path, "cifar10-c") is None


def test_a_row_is_tuned_with_the_network_of_its_table(tmp_path):
    def write(name, weights, rate):
        document = {"settings": {"learning_rate": rate}, "model": {"weights": weights}}
        (tmp_path / name).write_text(json.dumps(document))

    write("cifar10-c.json", "wrn_28_10-cifar10", 5e-4)
    assert read_tuned(tmp_path, "cifar10-c", "wrn_28_10-cifar10") == {"learning_rate": 5e-4}
    assert read_tuned(tmp_path, "cifar10-c", "longer") is None
    write("cifar10-c-longer.json", "longer", 2e-4)
    assert read_tuned(tmp_path, "cifar10-c", "longer") == {"learning_rate": 2e-4}
    assert len(plan("table1", methods=["law"], tuning=tmp_path, network="other")) == 1
    assert plan("table1", methods=["law"], tuning=tmp_path, network="longer")[1].settings["learning_rate"] == 2e-4


def test_what_was_tuned_with_another_network_is_refused(tmp_path):
    document = {"settings": {"learning_rate": 5e-4}, "model": {"weights": "another"}}
    (tmp_path / "cifar10-c.json").write_text(json.dumps(document))
    with pytest.raises(DataError, match=r"with the network another, .* `driftlaw tune cifar10-c --out .*`"):
        plan("table1", tuning=tmp_path)
    assert plan("table1", tuning=tmp_path, methods=["source"])  # LAW's settings are nothing to it
    document = {"settings": {"learning_rate": 5e-4}, "method": "tent"}
    (tmp_path / "cifar10-c-tent.json").write_text(json.dumps(document))
    with pytest.raises(DataError, match=r"chosen for tent .* tune cifar10-c --network tent --out"):
        plan("table1", tuning=tmp_path, network="tent")


def test_weights_are_the_same_by_their_content_and_not_by_their_name(tmp_path):
    document = {"settings": {"tau": 1.3}, "model": {"weights": "./here/longer.pt", "sha256": "a" * 64}}
    (tmp_path / "cifar10-c-longer.json").write_text(json.dumps(document))
    read = partial(read_tuned, tmp_path, "cifar10-c", "longer")
    assert read(lambda weights: "a" * 64) == {"tau": 1.3}
    for unlike in (lambda weights: "b" * 64, lambda weights: ""):
        with pytest.raises(DataError, match="other weights"):
            read(unlike)


@pytest.mark.parametrize("text", ["{", "{}", "[]", '{"settings": 3}', '{"settings": {}, "model": null}'])
def test_a_damaged_file_of_settings_is_told(tmp_path, text):
    (tmp_path / "cifar10-c.json").write_text(text)
    with pytest.raises(DataError, match="driftlaw tune"):
        read_tuned(tmp_path, "cifar10-c")
