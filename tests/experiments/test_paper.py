"""The paper's experiments: what each varies, and that every run has valid settings."""

from __future__ import annotations

import json
from functools import partial

import pytest

from driftlaw.errors import DataError, UsageError
from driftlaw.experiments import EXPERIMENTS, RunSpec, parse_seeds, plan_experiment, plan_run
from driftlaw.experiments.paper import read_tuned
from driftlaw.methods import registered_methods
from driftlaw.records.tuning_file import TUNING_FORMAT
from driftlaw.settings import parse
from driftlaw.streams import StreamSettings

NAMES = [f"table{number}" for number in range(1, 11)] + ["fig1a", "fig1b", "fig3", "fig4", "fig5", "stress"]


def plan(name: str, dataset: str = "cifar10-c", **more) -> list[RunSpec]:
    return plan_experiment(name, datasets=[dataset], seeds=[1], **more)


def values(specs: list[RunSpec], setting: str) -> list[float]:
    return [spec.settings.get(setting) for spec in specs]


def test_every_table_and_figure_is_an_experiment():
    assert sorted(EXPERIMENTS) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_run_has_valid_settings_and_its_own_record(name):
    experiment = EXPERIMENTS[name]
    specs = plan_experiment(name, datasets=experiment.possible, seeds=parse_seeds(experiment.seeds))
    assert len({spec.file_name for spec in specs}) == len(specs)
    for spec in specs:
        parse(registered_methods()[spec.method].Config, spec.settings, where=spec.title)
        parse(StreamSettings, spec.stream, where=spec.title)
        assert spec.experiment == name
        json.dumps([dict(spec.settings), dict(spec.stream), dict(spec.model)])


def test_table_1_is_the_preset():
    alike = {spec.method: spec.file_name for spec in plan_run("cifar10-c")}
    specs = plan("table1")
    assert [spec.method for spec in specs] == [
        *("source", "norm", "tent", "adacontrast", "cotta", "gtta", "rmt", "law"),
    ]
    assert all(spec.file_name == alike[spec.method] for spec in specs)


def test_the_grids_are_those_of_the_paper():
    assert values(plan("table4"), "consistency_weight") == [0.0, 0.01, 0.1, 1.0, 10.0, 100.0]
    assert values(plan("table5"), "tau") == [0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2]
    assert values(plan("table10"), "tau")[:7] == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    assert values(plan("table9"), "fisher_decay") == [0.0, 0.3, 0.6, 0.9, None]


@pytest.mark.parametrize("name", ["table3", "table4", "table5", "table9", "table10", "fig1a", "table6"])
def test_the_row_with_the_papers_settings_is_the_same_run_in_every_experiment(name):
    (law,) = plan("table1", methods=["law"])
    assert law.file_name in [spec.file_name for spec in plan(name)]


def test_gradual_streams_and_other_models():
    assert {spec.stream["schedule"] for spec in plan("table2")} == {"gradual"}
    assert [len({spec.model["weights"] for spec in plan_experiment(f"table{n}", seeds=[1])}) for n in (6, 7, 8)] == [
        *(4, 3, 3),
    ]


def test_figures_of_layer_weights_use_one_domain_each_and_the_source_model():
    assert [spec.stream["corruptions"] for spec in plan("fig3", "cifar100-c")] == [["gaussian_noise"], ["defocus_blur"]]
    assert values(plan("fig3", "cifar100-c"), "tau") == [1.0, 1.0]
    specs = plan("fig4")
    assert [spec.stream["corruptions"] for spec in specs] == [["clean"], ["gaussian_noise"], ["defocus_blur"]]
    assert all(spec.settings["more_facts"] and spec.settings["learning_rate"] < 1e-9 for spec in specs)
    assert [spec.file_name for spec in plan("fig5")] == [spec.file_name for spec in specs]


def test_surgical_tuning_uses_the_learning_rate_of_tent():
    (tent,) = plan("fig1a", methods=["tent"])
    assert {spec.settings["learning_rate"] for spec in plan("fig1a", methods=["surgical"])} == {
        tent.settings["learning_rate"]
    }


def test_stress_covers_every_kind_of_stream():
    streams = [spec.stream for spec in plan("stress", methods=["law"])]
    assert [stream["rounds"] for stream in streams if stream["schedule"] == "recurring"] == [10]
    assert any(stream["schedule"] == "mixed" for stream in streams)
    assert any(stream.get("order") == "dirichlet" for stream in streams)
    assert any(stream.get("corruptions") == ["clean"] for stream in streams)
    assert [stream["batch_size"] for stream in streams if "limit" in stream] == [1, 4, 16, 64, 200]


def test_a_limit_never_increases_the_number_of_images():
    assert {spec.stream["limit"] for spec in plan("table1", "imagenet-c")} == {5000}
    assert {spec.stream["limit"] for spec in plan("table1", "imagenet-c", limit=9000)} == {5000}
    assert {spec.stream["limit"] for spec in plan("table1", limit=40)} == {40}
    assert {spec.stream["limit"] for spec in plan("stress", limit=40)} == {40}


@pytest.mark.parametrize(
    ("name", "more", "message"),
    [
        ("tabel1", {}, "Did you mean 'table1'"),
        ("table6", {"datasets": ["cifar100-c"]}, r"Valid names: cifar10-c\.$"),
        ("table1", {"datasets": ["cifar10c"]}, "Did you mean 'cifar10-c'"),
        ("table4", {"methods": ["lew"]}, "Did you mean 'law'"),
    ],
)
def test_unknown_names_are_errors_with_a_suggestion(name, more, message):
    with pytest.raises(UsageError, match=message):
        plan_experiment(name, seeds=[1], **more)


@pytest.mark.parametrize("limit", [0, -5])
def test_a_limit_below_one_is_an_error(limit):
    with pytest.raises(UsageError, match=f"--limit is {limit}. Expected a number of images"):
        plan_experiment("table1", seeds=[1], limit=limit)


# --- LAW tuned on held-out corruptions -------------------------------------------------------------------------------


def write_tuned(path, settings, weights="wrn_28_10-cifar10", method="law", **model):
    document = {"format": TUNING_FORMAT, "settings": settings, "method": method}
    path.write_text(json.dumps(document | {"model": {"weights": weights, **model}}))


def test_tuned_settings_are_a_second_row_of_law(tmp_path):
    write_tuned(tmp_path / "cifar10-c.json", {"learning_rate": 5e-4, "tau": 1.3})
    for name, rows in [("table1", 2), ("table2", 2), ("table3", 2), ("stress", 18), ("table4", 6)]:
        assert len(plan(name, methods=["law"], tuning=tmp_path)) == rows
    paper, tuned = plan("table1", methods=["law"], tuning=tmp_path)
    assert (paper.settings["tau"], tuned.settings["tau"]) == (1.0, 1.3)
    assert tuned.settings["consistency_weight"] == paper.settings["consistency_weight"]
    assert "held-out" in tuned.label
    assert len(plan("table1", "cifar100-c", methods=["law"], tuning=tmp_path)) == 1


def test_tuned_settings_equal_to_the_papers_are_no_second_row(tmp_path):
    write_tuned(tmp_path / "cifar10-c.json", {"tau": 1.0})
    assert len(plan("table1", methods=["law"], tuning=tmp_path)) == 1


def test_tuned_settings_are_read_for_the_model_of_the_table(tmp_path):
    write_tuned(tmp_path / "cifar10-c.json", {"learning_rate": 5e-4})
    assert read_tuned(tmp_path, "cifar10-c", "wrn_28_10-cifar10") == {"learning_rate": 5e-4}
    assert read_tuned(tmp_path, "cifar10-c", "longer") is None
    write_tuned(tmp_path / "cifar10-c-longer.json", {"learning_rate": 2e-4}, "longer")
    assert read_tuned(tmp_path, "cifar10-c", "longer") == {"learning_rate": 2e-4}
    assert len(plan("table1", methods=["law"], tuning=tmp_path, model="other")) == 1
    assert plan("table1", methods=["law"], tuning=tmp_path, model="longer")[1].settings["learning_rate"] == 2e-4


def test_settings_tuned_for_another_model_or_method_are_an_error(tmp_path):
    write_tuned(tmp_path / "cifar10-c.json", {"learning_rate": 5e-4}, "another")
    with pytest.raises(DataError, match=r"with the weights another\. .* `driftlaw tune cifar10-c --out .*`"):
        plan("table1", tuning=tmp_path)
    assert plan("table1", tuning=tmp_path, methods=["source"])  # LAW's settings are not read
    write_tuned(tmp_path / "cifar10-c-tent.json", {"learning_rate": 5e-4}, "tent", method="tent")
    with pytest.raises(DataError, match=r"settings of tent.* tune cifar10-c --model tent --out"):
        plan("table1", tuning=tmp_path, model="tent")


def test_weights_are_compared_by_hash_before_name(tmp_path):
    write_tuned(tmp_path / "cifar10-c-longer.json", {"tau": 1.3}, "./here/longer.pt", sha256="a" * 64)
    read = partial(read_tuned, tmp_path, "cifar10-c", "longer")
    assert read(lambda weights: "a" * 64) == {"tau": 1.3}
    for unlike in (lambda weights: "b" * 64, lambda weights: ""):
        with pytest.raises(DataError, match=r"with the weights \./here/longer\.pt"):
            read(unlike)


VALID = {"format": TUNING_FORMAT, "method": "law", "model": {}}
DAMAGED = ({}, {"settings": 3}, {"settings": {}, "model": None})


@pytest.mark.parametrize("text", ["{", "{}", "[]", *(json.dumps(VALID | change) for change in DAMAGED)])
def test_a_damaged_tuning_file_is_an_error(tmp_path, text):
    (tmp_path / "cifar10-c.json").write_text(text)
    with pytest.raises(DataError, match="driftlaw tune"):
        read_tuned(tmp_path, "cifar10-c")
