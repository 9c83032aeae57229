"""Inventory of available assets."""

from __future__ import annotations

import pytest

from driftlaw.experiments import plan_experiment
from driftlaw.experiments.assets import AssetInventory
from driftlaw.experiments.plan import embedded_fallback
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
