"""Run specifications: which runs a command asks for, and where their records are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from driftlaw import experiments
from driftlaw.base import registered_methods
from driftlaw.errors import UsageError
from driftlaw.experiments import RunSpec, parse_seeds, plan_run
from driftlaw.settings import read_preset
from tests.reports.example_records import make_record, write_record


def plan(methods: str, *assignments: str) -> list[RunSpec]:
    return plan_run("embedded", assignments=assignments, methods=methods)


def test_old_class_names_still_work():
    with pytest.warns(DeprecationWarning, match="is deprecated"):
        assert experiments.Cell is RunSpec
    with pytest.warns(DeprecationWarning, match="is deprecated"):
        assert experiments.Workbench is experiments.RunContext


@pytest.mark.parametrize(
    ("methods", "assignment", "message"),
    [
        ("source,law", "tau=0.6", r"Write law\.tau=0\.6\.$"),
        ("source", "tau=0.6", r"Write law\.tau=0\.6"),  # law is not run, but has the setting
        ("source", "batch_size=3", r"Write stream\.batch_size=3\.$"),
        ("law", "nothing=1", r"Write nothing\.SETTING=1\.$"),
    ],
)
def test_a_setting_without_its_method_is_refused_with_the_right_spelling(methods, assignment, message):
    with pytest.raises(UsageError, match=message):
        plan(methods, assignment)


def test_a_setting_of_a_method_that_is_not_run_is_refused():
    with pytest.raises(UsageError, match=r"--set law\.tau has no effect, because law is not run. Runs: source, norm\."):
        plan("source,norm", "law.tau=0.6")


def test_every_method_runs_with_every_seed():
    specs = plan_run("embedded", methods="source,law", seeds="1-2")
    assert [(spec.method, spec.seed) for spec in specs] == [("source", 1), ("source", 2), ("law", 1), ("law", 2)]
    assert [spec.method for spec in plan_run("embedded")] == read_preset("embedded")["default_methods"]
    assert [spec.method for spec in plan_run("cifar10-c")] == list(read_preset("cifar10-c")["methods"])


def test_without_a_preset_all_settings_have_their_defaults():
    (spec,) = plan_run(None, methods="law", model="embedded", assignments=["law.tau=0.6"])
    assert (spec.settings, spec.stream) == ({"tau": 0.6}, {})
    assert spec.model == {"weights": "wrn_16_1-cifar10"}


@pytest.mark.parametrize(
    ("preset", "method", "name"),
    [
        ("cifar10-c", "law", "cifar10-c-law-seed1-06708deb.jsonl"),
        ("cifar10-c", "source", "cifar10-c-source-seed1-8a115e68.jsonl"),
        ("cifar10-c", "tent", "cifar10-c-tent-seed1-5637392f.jsonl"),
    ],
)
def test_file_names_of_stored_records_do_not_change(preset, method, name):
    (spec,) = plan_run(preset, methods=method)
    assert spec.file_name == name


def test_different_streams_models_settings_and_seeds_have_different_file_names():
    (spec,) = plan("law")
    others = [
        replace(spec, seed=2),
        replace(spec, settings={**spec.settings, "tau": 0.5}),
        replace(spec, stream={**spec.stream, "limit": 40}),
        replace(spec, model={"weights": "other"}),
        replace(spec, preset="other"),
    ]
    assert len({other.file_name for other in [spec, *others]}) == 6
    assert replace(spec, label="the same by another name").file_name == spec.file_name


def test_the_cost_of_a_step_is_what_the_method_declares():
    assert [spec.step_cost for spec in plan("source,tent,law")] == [1, 2, 8]


def test_records_of_an_experiment_are_in_its_folder():
    (spec,) = plan("law")
    assert spec.record_path(Path("out")).parent == Path("out")
    assert replace(spec, experiment="table1").record_path(Path("out")).parent == Path("out/table1/embedded")


def test_finished_record_reads_plain_and_compressed_records_but_no_unfinished_one(tmp_path):
    (spec,) = plan("law")
    path = spec.record_path(tmp_path)
    assert spec.finished_record(tmp_path) is None
    write_record(make_record("law", finished=False, batches_done=3), path)
    assert spec.finished_record(tmp_path) is None
    write_record(make_record("law"), path)
    assert spec.finished_record(tmp_path).path == path
    path.unlink()
    packed = write_record(make_record("law"), path.with_name(path.name + ".gz"))
    assert spec.finished_record(tmp_path).path == packed


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (["law=3"], "law.SETTING=3"),
        (["tau=0.6"], r"--set tau=0\.6 does not say .* Write law\.tau=0\.6\."),
        (["lr=0.6"], r"Write law\.lr=0\.6\."),
        (["severity=3"], r"Write stream\.severity=3\."),
        (["model.wieghts=x"], "Did you mean 'weights'"),
        (["laww.tau=0.6"], "Did you mean 'law'"),
        (["strem.limit=3"], "Did you mean 'stream'"),
    ],
)
def test_wrong_assignments_are_errors(assignments, message):
    with pytest.raises(UsageError, match=message):
        plan("law", *assignments)


METHOD = """
from driftlaw.base import Adapter, StepOutput


class Mine(Adapter, name="NAME"):
    def update(self, images, plan):
        return StepOutput(self.model(images))
"""


@pytest.mark.parametrize("suffix", ["", ":Mine"])
def test_methods_may_be_python_files(tmp_path, suffix):
    path = tmp_path / "mine.py"
    path.write_text(METHOD.replace("NAME", "my-method"))
    for _ in range(2):  # a second import is no conflict
        specs = plan(f"source,{path}{suffix}")
    assert [spec.method for spec in specs] == ["source", "my-method"]
    assert specs[1].file_name.startswith("embedded-my-method-seed1-")


def test_method_of_a_file_must_not_have_the_name_of_another_method(tmp_path):
    path, law = tmp_path / "mine.py", registered_methods()["law"]
    path.write_text(METHOD.replace("NAME", "law"))
    with pytest.raises(UsageError, match=r"mine\.py defines a method called 'law', which already exists"):
        plan(f"law,{path}")
    assert registered_methods()["law"] is law


def test_own_network_is_part_of_the_file_name():
    names = {
        plan_run("embedded", methods="law", **more)[0].file_name
        for more in (
            {},
            {"model": "mynet.py:make"},
            {"model": "mynet.py:make", "checkpoint": "a.pth"},
            {"model": "mynet.py:make", "normalize": "half"},
        )
    }
    assert len(names) == 4
    with pytest.raises(UsageError, match=r"--checkpoint a\.pth needs a network"):
        plan_run("embedded", checkpoint="a.pth")


@pytest.mark.parametrize("text", ["one", "1-", "-1", "1,,2", "3-1", "²", "1-1001", "1-9999999999", "9" * 20])
def test_wrong_seeds_are_errors(text):
    with pytest.raises(UsageError, match="--seeds"):
        parse_seeds(text)


def test_other_weights_replace_those_of_the_preset():
    for network, weights in (("mine.safetensors", "mine.safetensors"), ("embedded", "wrn_16_1-cifar10")):
        (spec,) = plan_run("cifar10-c", methods="law", model=network, assignments=["model.weights=other"])
        assert spec.model["weights"] == weights


# --- the training data -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dataset", ["cifar10-embedded", "cifar10-c-embedded", "archive:/somewhere"])
def test_a_dataset_without_train_split_is_an_error_before_anything_is_read(dataset):
    with pytest.raises(UsageError, match=r"needed by rmt, gtta, but .* has no train split\. .*stream\.train_data="):
        plan("source,rmt,gtta", f"stream.dataset={dataset}")
    plan("source,norm", f"stream.dataset={dataset}")


def test_training_data_is_the_streams_dataset_unless_named():
    assert plan("gtta", "stream.dataset=cifar10")[0].train_dataset == "cifar10"
    assert plan("gtta", "stream.dataset=cifar10-c")[0].train_dataset == "cifar10"
    for key in ("train_data", "source"):  # 'source' is the name of earlier versions
        assert plan("gtta", f"stream.{key}=folder:/pictures")[0].train_dataset == "folder:/pictures"
    with pytest.raises(UsageError, match="Did you mean 'cifar10"):
        plan("gtta", "stream.train_data=cifar11")


def test_named_training_data_changes_only_records_of_methods_that_use_it():
    named, other = (plan("source,gtta", f"stream.train_data={name}") for name in ("cifar10", "folder:/pictures"))
    assert named[1].file_name != other[1].file_name
    assert named[0].file_name == plan("source")[0].file_name
    assert not {"source", "train_data"} & set(named[0].stream)


def test_a_preset_without_stream_must_be_combined():
    with pytest.raises(UsageError, match=r"Combine it with another preset, such as cifar10-c\+fast"):
        plan_run("fast")
