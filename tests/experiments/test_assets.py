"""Inventory of available assets, and the embedded fallback."""

from __future__ import annotations

import pytest

from driftlaw.experiments import plan_experiment
from driftlaw.experiments.assets import AssetInventory, embedded_fallback, has_fallback, with_model
from tests.experiments.tiny import tiny_spec, tiny_weights


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    return tiny_weights(tmp_path_factory.mktemp("weights") / "tiny.safetensors")


def specs_of(name, dataset="cifar10-c", methods=None):
    return plan_experiment(name, datasets=[dataset], methods=methods, seeds=[1], limit=40)


def test_a_possible_run_has_no_problems(weights):
    assert AssetInventory().all_problems(tiny_spec(weights)) == []


def test_problems_name_the_commands_that_solve_them(tmp_path):
    (spec,) = specs_of("table1", methods=["law"])
    images, model = AssetInventory(tmp_path).problems(spec)
    assert "driftlaw data get cifar10" in images
    assert "python -m benchmarks train --dataset cifar10 --model wrn_28_10" in model


def test_missing_training_data_is_a_problem_only_for_methods_that_need_it(tmp_path, weights):
    inventory = AssetInventory(tmp_path)
    needy, other = (embedded_fallback(spec) for spec in specs_of("table1", methods=["gtta", "law"]))
    assert inventory.all_problems(other) == []
    assert "training data" in inventory.all_problems(needy)[0]


def test_a_model_with_other_classes_is_a_problem(tmp_path):
    spec = tiny_spec(tiny_weights(tmp_path / "three.safetensors", classes=3))
    assert "has 3 output classes" in AssetInventory().problems(spec)[0]


def test_cost_counts_images_and_passes(weights):
    inventory = AssetInventory()
    source, law, longer = tiny_spec(weights, "source"), tiny_spec(weights, "law"), tiny_spec(weights, "law", limit=16)
    assert inventory.cost(source) == 16
    assert inventory.cost(law) == 8 * 16
    assert inventory.cost(longer) == 2 * inventory.cost(law)


# --- fallback --------------------------------------------------------------------------------------------------------


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


def test_the_preset_name_includes_other_weights(weights, tmp_path):
    (spec,) = specs_of("table1", "cifar100-c", methods=["law"])
    (other,) = with_model([spec], str(weights), AssetInventory(tmp_path))
    assert (other.preset, other.stream) == ("cifar100-c-tiny", spec.stream)
    (own,) = with_model([spec], spec.model["weights"], AssetInventory(tmp_path))
    assert own == spec
    (named,) = with_model([spec], "timm:a/b", AssetInventory(tmp_path))
    assert named.preset == "cifar100-c-timm-a-b"


def test_the_embedded_model_uses_the_embedded_images_if_others_are_missing(tmp_path):
    (spec,) = specs_of("table1", methods=["law"])
    (other,) = with_model([spec], "embedded", AssetInventory(tmp_path))
    assert other.file_name == embedded_fallback(spec).file_name


def test_a_label_that_names_the_weights_is_removed_with_them(tmp_path):
    assert {embedded_fallback(spec).label for spec in specs_of("table6")} == {""}
    assert {embedded_fallback(spec).label for spec in specs_of("table5")} >= {"τ 0.6"}
