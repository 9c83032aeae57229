"""What is to be done for an experiment: what is there, what is copied, what can be run, what is missing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from driftlaw.errors import UsageError
from driftlaw.experiments import plan_experiment
from driftlaw.experiments.assets import Stock
from driftlaw.experiments.plan import bring_borrowed, prepare
from tests.experiments.tiny import tiny_cell, tiny_weights
from tests.reports.example_records import make_record, write_record


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    return tiny_weights(tmp_path_factory.mktemp("weights") / "tiny.safetensors")


@pytest.fixture
def stock(tmp_path):
    return Stock(tmp_path / "nothing here")


def record_of(weights, stock, method="norm", **more):
    return make_record(method, header={"model": {"name": "tiny", "sha256": stock.network(str(weights)).sha256}}, **more)


def test_cells_with_a_finished_record_are_not_run(weights, stock, tmp_path):
    done, half, new = (tiny_cell(weights, seed=seed, experiment="table1") for seed in (1, 2, 3))
    write_record(record_of(weights, stock), done.places(tmp_path)[1])
    write_record(record_of(weights, stock, finished=False, batches_done=2), half.sink(tmp_path))
    prospect = prepare([done, half, new], tmp_path, stock)
    assert list(prospect.finished) == [done.sink(tmp_path)]
    assert prospect.to_run == [half, new]
    assert prepare([done, half, new], tmp_path, stock, again=True).to_run == [done, half, new]


def test_the_same_cell_of_another_experiment_is_copied(weights, stock, tmp_path):
    cell = tiny_cell(weights, experiment="table1")
    elsewhere = write_record(record_of(weights, stock), replace(cell, experiment="table5").places(tmp_path)[1])
    prospect = prepare([cell], tmp_path, stock)
    assert prospect.to_run == []
    assert not cell.places(tmp_path)[1].exists()
    bring_borrowed(prospect)
    assert cell.places(tmp_path)[1].read_bytes() == elsewhere.read_bytes()
    assert prospect.finished[cell.sink(tmp_path)].path == cell.places(tmp_path)[1]


def test_records_of_other_weights_are_refused(weights, stock, tmp_path):
    cell = tiny_cell(weights, experiment="table1")
    write_record(make_record("norm"), cell.sink(tmp_path))
    with pytest.raises(UsageError, match="other weights of the same name"):
        prepare([cell], tmp_path, stock)
    assert prepare([cell], tmp_path, stock, again=True).to_run == [cell]


def test_the_embedded_default_stands_in_where_nothing_else_is_there(stock, tmp_path):
    cells = plan_experiment("table1", seeds=[1], methods=["source", "gtta"])
    prospect = prepare(cells, tmp_path, stock)
    assert [cell.preset for cell in prospect.to_run] == ["embedded"]
    assert "driftlaw train" in prospect.stood_in[0]
    assert {cell.preset for cell, _ in prospect.left_out} == {"embedded", "cifar100-c", "imagenet-c"}
    assert len(prospect.reasons()) == 3


@pytest.mark.parametrize("network", ["nosuch", "here/nosuch.safetensors", "wrn_28_10-cifar10"])
def test_nothing_stands_in_for_a_network_that_was_asked_for(stock, tmp_path, network):
    cells = plan_experiment("table1", datasets=["cifar10-c"], seeds=[1], methods=["source"])
    with pytest.raises(UsageError, match=f"--network {network}: no "):
        prepare(cells, tmp_path, stock, network=network)


def test_settings_chosen_for_the_benchmarks_network_do_not_go_with_what_stands_in(stock, tmp_path):
    (tmp_path / "cifar10-c.json").write_text('{"settings": {"learning_rate": 5e-4}}')
    cells = plan_experiment("table1", datasets=["cifar10-c"], seeds=[1], methods=["law"], tuning=tmp_path)
    prospect = prepare(cells, tmp_path / "out", stock)
    assert len(cells) == 2
    assert [(cell.preset, cell.settings["learning_rate"]) for cell in prospect.to_run] == [("embedded", 1e-3)]


def test_nothing_stands_in_beside_records_of_the_benchmark_itself(stock, tmp_path):
    cells = plan_experiment("table1", datasets=["cifar10-c"], seeds=[1], methods=["source", "law"])
    write_record(make_record("source"), cells[0].sink(tmp_path))
    prospect = prepare(cells, tmp_path, stock)
    assert prospect.stood_in == []
    assert [cell.method for cell, _ in prospect.left_out] == ["law"]
    assert len(prospect.finished) == 1


def test_another_network_is_run_once_however_many_an_experiment_varies(stock, tmp_path):
    cells = plan_experiment("table6", seeds=[1], methods=["law"])
    prospect = prepare(cells, tmp_path, stock, network="embedded")
    assert len(cells) == 4
    assert [cell.preset for cell in prospect.to_run] == ["embedded"]
