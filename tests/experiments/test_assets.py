"""What lies on this machine, and what may stand in for what does not."""

from __future__ import annotations

import pytest

from driftlaw.experiments import plan_experiment
from driftlaw.experiments.assets import Stock, has_stand_in, with_embedded, with_network
from tests.experiments.tiny import tiny_cell, tiny_weights


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    return tiny_weights(tmp_path_factory.mktemp("weights") / "tiny.safetensors")


def cells_of(name, dataset="cifar10-c", methods=None):
    return plan_experiment(name, datasets=[dataset], methods=methods, seeds=[1], limit=40)


def test_nothing_is_missing_of_a_cell_that_can_be_run(weights):
    assert Stock().all_problems(tiny_cell(weights)) == []


def test_what_is_missing_is_told_with_the_command_that_gets_it(tmp_path):
    (cell,) = cells_of("table1", methods=["law"])
    images, network = Stock(tmp_path).problems(cell)
    assert "driftlaw data get cifar10" in images
    assert "driftlaw train --dataset cifar10 --model wrn_28_10" in network


def test_training_data_is_missed_only_by_those_that_need_it(tmp_path, weights):
    stock = Stock(tmp_path)
    needy, other = (with_embedded(cell) for cell in cells_of("table1", methods=["gtta", "law"]))
    assert stock.all_problems(other) == []
    assert "training data" in stock.all_problems(needy)[0]


def test_a_network_of_other_classes_is_a_problem(tmp_path):
    cell = tiny_cell(tiny_weights(tmp_path / "three.safetensors", classes=3))
    assert "answers 3 classes" in Stock().problems(cell)[0]


def test_work_counts_images_and_passes(weights):
    stock = Stock()
    source, law, longer = tiny_cell(weights, "source"), tiny_cell(weights, "law"), tiny_cell(weights, "law", limit=16)
    assert stock.stream(source).steps == 4
    assert stock.work(source) == 16
    assert stock.work(law) == 8 * 16
    assert stock.work(longer) == 2 * stock.work(law)


# --- stand-ins -------------------------------------------------------------------------------------------------------


def test_the_embedded_default_stands_in_for_cifar_10_alone():
    assert [has_stand_in(cells_of("table1", name)[0]) for name in ("cifar10-c", "cifar100-c", "imagenet-c")] == [
        *(True, False, False),
    ]


def test_a_stand_in_goes_by_another_name_and_keeps_the_papers_settings():
    (cell,) = cells_of("table1", methods=["law"])
    other = with_embedded(cell)
    assert other.preset == "embedded"
    assert other.file_name.startswith("embedded-law-")
    assert other.settings == cell.settings
    assert (other.stream["dataset"], other.stream["limit"]) == ("cifar10-embedded", 40)
    assert other.source_dataset == "cifar10"


def test_another_network_goes_by_its_own_name(weights, tmp_path):
    (cell,) = cells_of("table1", "cifar100-c", methods=["law"])
    (other,) = with_network([cell], str(weights), Stock(tmp_path))
    assert (other.preset, other.stream) == ("cifar100-c-tiny", cell.stream)
    (own,) = with_network([cell], cell.model["weights"], Stock(tmp_path))
    assert own == cell
    (named,) = with_network([cell], "timm:a/b", Stock(tmp_path))
    assert named.preset == "cifar100-c-timm-a-b"


def test_with_the_embedded_network_missing_images_are_stood_in_for_too(tmp_path):
    (cell,) = cells_of("table1", methods=["law"])
    (other,) = with_network([cell], "embedded", Stock(tmp_path))
    assert other.file_name == with_embedded(cell).file_name


def test_a_label_that_names_the_network_goes_with_it(tmp_path):
    assert {with_embedded(cell).label for cell in cells_of("table6")} == {""}
    assert {with_embedded(cell).label for cell in cells_of("table5")} >= {"τ 0.6"}
