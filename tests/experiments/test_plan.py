"""Execution plans: finished, reusable, possible and skipped runs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from driftlaw.errors import UsageError
from driftlaw.experiments import plan_experiment
from driftlaw.experiments.assets import AssetInventory
from driftlaw.experiments.plan import copy_reusable_records, embedded_fallback, has_fallback, plan_execution
from driftlaw.records.tuning_file import TUNING_FORMAT
from tests.experiments.tiny import tiny_spec, tiny_weights
from tests.reports.example_records import make_record, write_record


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    return tiny_weights(tmp_path_factory.mktemp("weights") / "tiny.safetensors")


@pytest.fixture
def inventory(tmp_path):
    return AssetInventory(tmp_path / "nothing here")


def specs_of(name, dataset="cifar10-c", methods=None):
    return plan_experiment(name, datasets=[dataset], methods=methods, seeds=[1], limit=40)


def record_of(weights, inventory, method="norm", **more):
    return make_record(
        method, header={"model": {"name": "tiny", "sha256": inventory.model(str(weights)).sha256}}, **more
    )


def test_runs_with_a_finished_record_are_not_repeated(weights, inventory, tmp_path):
    done, half, new = (tiny_spec(weights, seed=seed, experiment="table1") for seed in (1, 2, 3))
    write_record(record_of(weights, inventory), done.record_candidates(tmp_path)[1])
    write_record(record_of(weights, inventory, finished=False, batches_done=2), half.record_path(tmp_path))
    plan = plan_execution([done, half, new], tmp_path, inventory)
    assert plan.specs("finished") == [done]
    assert plan.specs("to run") == [half, new]
    assert plan_execution([done, half, new], tmp_path, inventory, overwrite=True).specs("to run") == [done, half, new]


def test_the_record_of_the_same_run_in_another_experiment_is_copied(weights, inventory, tmp_path):
    spec = tiny_spec(weights, experiment="table1")
    elsewhere = write_record(
        record_of(weights, inventory), replace(spec, experiment="table5").record_candidates(tmp_path)[1]
    )
    plan = plan_execution([spec], tmp_path, inventory)
    assert plan.specs("to run") == []
    assert not spec.record_candidates(tmp_path)[1].exists()
    copy_reusable_records(plan)
    assert spec.record_candidates(tmp_path)[1].read_bytes() == elsewhere.read_bytes()
    assert plan.runs[0].record.path == spec.record_candidates(tmp_path)[1]


def test_records_made_with_other_weights_are_an_error(weights, inventory, tmp_path):
    spec = tiny_spec(weights, experiment="table1")
    write_record(make_record("norm"), spec.record_path(tmp_path))
    with pytest.raises(UsageError, match="other weights of the same name"):
        plan_execution([spec], tmp_path, inventory)
    assert plan_execution([spec], tmp_path, inventory, overwrite=True).specs("to run") == [spec]


def test_the_fallback_is_used_if_nothing_of_a_benchmark_is_available(inventory, tmp_path):
    specs = plan_experiment("table1", seeds=[1], methods=["source", "gtta"])
    plan = plan_execution(specs, tmp_path, inventory)
    assert [spec.preset for spec in plan.specs("to run")] == ["embedded"]
    assert "python -m benchmarks train" in plan.fallbacks[0]
    assert {spec.preset for spec in plan.specs("skipped")} == {"embedded", "cifar100-c", "imagenet-c"}
    assert len(plan.skipped_by_reason()) == 3


@pytest.mark.parametrize("model", ["nosuch", "here/nosuch.safetensors", "wrn_28_10-cifar10"])
def test_a_requested_model_has_no_fallback(inventory, tmp_path, model):
    specs = plan_experiment("table1", datasets=["cifar10-c"], seeds=[1], methods=["source"])
    with pytest.raises(UsageError, match=f"--network {model}: The"):
        plan_execution(specs, tmp_path, inventory, model=model)


def test_tuned_settings_are_not_used_with_the_fallback(inventory, tmp_path):
    document = {"format": TUNING_FORMAT, "method": "law", "settings": {"learning_rate": 5e-4}}
    document["model"] = {"weights": "wrn_28_10-cifar10"}
    (tmp_path / "cifar10-c.json").write_text(json.dumps(document))
    specs = plan_experiment("table1", datasets=["cifar10-c"], seeds=[1], methods=["law"], tuning=tmp_path)
    plan = plan_execution(specs, tmp_path / "out", inventory)
    assert len(specs) == 2
    assert [(spec.preset, spec.settings["learning_rate"]) for spec in plan.specs("to run")] == [("embedded", 1e-3)]


def test_a_benchmark_with_records_has_no_fallback(inventory, tmp_path):
    specs = plan_experiment("table1", datasets=["cifar10-c"], seeds=[1], methods=["source", "law"])
    write_record(make_record("source"), specs[0].record_path(tmp_path))
    plan = plan_execution(specs, tmp_path, inventory)
    assert plan.fallbacks == []
    assert [spec.method for spec in plan.specs("skipped")] == ["law"]
    assert len(plan.specs("finished")) == 1


def test_a_requested_model_runs_once_in_experiments_that_vary_the_model(inventory, tmp_path):
    specs = plan_experiment("table6", seeds=[1], methods=["law"])
    plan = plan_execution(specs, tmp_path, inventory, model="embedded")
    assert len(specs) == 4
    assert [spec.preset for spec in plan.specs("to run")] == ["embedded"]


# --- fallback and other models ---------------------------------------------------------------------------------------


def test_only_cifar_10_has_a_fallback():
    assert [has_fallback(specs_of("table1", name)[0]) for name in ("cifar10-c", "cifar100-c", "imagenet-c")] == [
        *(True, False, False),
    ]


def test_the_fallback_has_its_own_name_and_the_papers_settings():
    (spec,) = specs_of("table1", methods=["law"])
    other = embedded_fallback(spec)
    assert other.preset == "embedded"
    assert other.file_name.startswith("embedded-law-")
    assert other.settings == spec.settings
    assert (other.stream["dataset"], other.stream["limit"]) == ("cifar10-embedded", 40)
    assert other.train_dataset == "cifar10"


def test_the_preset_name_includes_other_weights(weights):
    (spec,) = specs_of("table1", "cifar100-c", methods=["law"])
    other = spec.with_weights(str(weights))
    assert (other.preset, other.stream) == ("cifar100-c-tiny", spec.stream)
    assert spec.with_weights(spec.model["weights"]) == spec
    assert spec.with_weights("timm:a/b").preset == "cifar100-c-timm-a-b"


def test_the_embedded_model_uses_the_embedded_images_if_others_are_missing(inventory, tmp_path):
    (spec,) = specs_of("table1", methods=["law"])
    (other,) = plan_execution([spec], tmp_path, inventory, model="embedded").specs("to run")
    assert other.file_name == embedded_fallback(spec).file_name


def test_a_label_that_names_the_weights_is_removed_with_them():
    assert {embedded_fallback(spec).label for spec in specs_of("table6")} == {""}
    assert {embedded_fallback(spec).label for spec in specs_of("table5")} >= {"τ 0.6"}
