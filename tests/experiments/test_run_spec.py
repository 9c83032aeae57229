"""Cells: what a command asks for, and where the record of each lies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from driftlaw.errors import UsageError
from driftlaw.experiments import Cell, parse_seeds, plan_run
from tests.reports.example_records import make_record, write_record


def plan(methods: str, *assignments: str) -> list[Cell]:
    return plan_run("embedded", assignments=assignments, methods=methods)


def test_every_method_comes_with_every_seed():
    cells = plan_run("embedded", methods="source,law", seeds="1-2")
    assert [(cell.method, cell.seed) for cell in cells] == [("source", 1), ("source", 2), ("law", 1), ("law", 2)]
    assert [cell.method for cell in plan_run("embedded")] == ["source", "norm", "tent", "law"]


@pytest.mark.parametrize(
    ("preset", "method", "name"),
    [
        ("cifar10-c", "law", "cifar10-c-law-seed1-06708deb.jsonl"),
        ("cifar10-c", "source", "cifar10-c-source-seed1-8a115e68.jsonl"),
        ("cifar10-c", "tent", "cifar10-c-tent-seed1-5637392f.jsonl"),
    ],
)
def test_records_that_lie_in_results_keep_their_names(preset, method, name):
    (cell,) = plan_run(preset, methods=method)
    assert cell.file_name == name


def test_names_tell_streams_networks_settings_and_seeds_apart():
    (cell,) = plan("law")
    others = [
        replace(cell, seed=2),
        replace(cell, settings={**cell.settings, "tau": 0.5}),
        replace(cell, stream={**cell.stream, "limit": 40}),
        replace(cell, model={"weights": "other"}),
        replace(cell, preset="other"),
    ]
    assert len({other.file_name for other in [cell, *others]}) == 6
    assert replace(cell, label="the same by another name").file_name == cell.file_name


def test_an_experiment_has_a_folder_of_its_own():
    (cell,) = plan("law")
    assert cell.sink(Path("out")).parent == Path("out")
    assert replace(cell, experiment="table1").sink(Path("out")).parent == Path("out/table1/embedded")


def test_a_finished_record_is_found_plain_or_compressed_and_an_unfinished_one_is_not(tmp_path):
    (cell,) = plan("law")
    sink = cell.sink(tmp_path)
    assert cell.finished_record(tmp_path) is None
    write_record(make_record("law", finished=False, batches_done=3), sink)
    assert cell.finished_record(tmp_path) is None
    write_record(make_record("law"), sink)
    assert cell.finished_record(tmp_path).path == sink
    sink.unlink()
    packed = write_record(make_record("law"), sink.with_name(sink.name + ".gz"))
    assert cell.finished_record(tmp_path).path == packed


@pytest.mark.parametrize(
    ("assignments", "told"),
    [
        (["law=3"], "law.SETTING=3"),
        (["laww.tau=0.6"], "Did you mean 'law'"),
        (["strem.limit=3"], "Did you mean 'stream'"),
    ],
)
def test_wrong_assignments_are_told(assignments, told):
    with pytest.raises(UsageError, match=told):
        plan("law", *assignments)


@pytest.mark.parametrize("text", ["one", "1-", "-1", "1,,2", "3-1"])
def test_wrong_seeds_are_told(text):
    with pytest.raises(UsageError, match="--seeds"):
        parse_seeds(text)


def test_another_network_may_be_named():
    for network, weights in (("mine.safetensors", "mine.safetensors"), ("embedded", "wrn_16_1-cifar10")):
        (cell,) = plan_run("cifar10-c", methods="law", network=network, assignments=["model.weights=other"])
        assert cell.model["weights"] == weights


# --- the training data -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dataset", ["cifar10-embedded", "cifar10-c-embedded", "archive:/somewhere"])
def test_a_dataset_without_training_data_is_refused_before_anything_is_read(dataset):
    with pytest.raises(UsageError, match=r"needed by rmt, gtta, and .* has none: .*stream\.source="):
        plan("source,rmt,gtta", f"stream.dataset={dataset}")
    plan("source,norm", f"stream.dataset={dataset}")


def test_the_source_is_the_train_split_of_the_dataset_unless_named():
    assert plan("gtta", "stream.dataset=cifar10")[0].source_dataset == "cifar10"
    assert plan("gtta", "stream.dataset=cifar10-c")[0].source_dataset == "cifar10"
    assert plan("gtta", "stream.source=folder:/pictures")[0].source_dataset == "folder:/pictures"
    with pytest.raises(UsageError, match="Did you mean 'cifar10"):
        plan("gtta", "stream.source=cifar11")


def test_a_named_source_goes_to_another_record_of_those_that_look_at_it():
    named, other = (plan("source,gtta", f"stream.source={name}") for name in ("cifar10", "folder:/pictures"))
    assert named[1].file_name != other[1].file_name
    assert named[0].file_name == plan("source")[0].file_name
    assert "source" not in named[0].stream


def test_a_preset_of_methods_alone_is_to_be_laid_over_another():
    with pytest.raises(UsageError, match=r"lay it over another one, such as cifar10-c\+fast"):
        plan_run("fast")
