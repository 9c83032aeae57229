"""Tuning: trials, choice, and that the benchmark's corruptions are never used."""

import json
from pathlib import Path

import pytest

from benchmarks.tune.files import write_tuning
from benchmarks.tune.search import (
    check_held_out,
    plan_tuning,
    run_search,
    tuning_document,
)
from driftlaw.corruptions import list_corruptions
from driftlaw.errors import UsageError
from driftlaw.experiments.paper import read_tuned
from driftlaw.records import RunRecord
from driftlaw.streams import make_stream

HELD_OUT = list_corruptions("held_out")


def synthetic_record(spec, error):
    """Return the record of a run with ``error`` wrong predictions per 100 images in each domain."""
    domains = enumerate(spec.stream["corruptions"] if isinstance(spec.stream["corruptions"], list) else HELD_OUT)
    lines = [
        {"batch": number, "segment": number, "domain": {"name": name, "severity": 5, "round": 0}, "images": 100}
        | {"wrong": error, "facts": {}, "timing": {"seconds": 1.0}}
        for number, name in domains
    ]
    header = {"stream": {"corruptions": [line["domain"]["name"] for line in lines]}, "model": {"sha256": "a" * 64}}
    return RunRecord(header, lines, {"closing": True}, Path(spec.file_name))


def search(plan, error_of):
    """Search with synthetic errors; return the runs in order."""
    run = []

    def run_trial(specs):
        run.extend(specs)
        return [synthetic_record(spec, error_of(spec.settings)) for spec in specs]

    assert list(run_search(plan, run_trial)) == plan.trials
    return run


def bowl(settings):
    """Lowest at tau 0.8 and a learning rate of 5e-4."""
    return round(20 + 50 * abs(settings["tau"] - 0.8) + 2e4 * abs(settings["learning_rate"] - 5e-4))


def test_the_default_grid_is_around_the_presets_values():
    plan = plan_tuning("cifar100-c")
    assert plan.start == {"learning_rate": 5e-5, "tau": 0.6, "consistency_weight": 1.0}
    assert plan.grid == {
        "learning_rate": [1e-5, 2.5e-5, 5e-5, 1e-4],
        "tau": (0.6, 0.8, 1.0, 1.3),
        "consistency_weight": [0.3, 1.0, 3.0],
    }


def test_coordinate_search_needs_fewer_trials_than_the_grid():
    plan = plan_tuning("embedded")
    run = search(plan, bowl)
    assert plan.choice.values == {"learning_rate": 5e-4, "tau": 0.8, "consistency_weight": 0.1}
    assert len(run) == len(plan.trials) <= plan.max_trials < 4 * 4 * 3
    assert len({json.dumps(trial.values) for trial in plan.trials}) == len(plan.trials)


def test_the_presets_values_are_tried_first_even_if_not_in_the_grid():
    for kind in ("coordinate", "grid"):
        plan = plan_tuning("embedded", grid=["tau=0.5,0.7"], search=kind)
        search(plan, lambda settings: 30)
        assert plan.trials[0].values == {"tau": 1.0}
        assert plan.choice is plan.trials[0]  # of equals, the nearest to the preset


def test_grid_search_tries_every_combination():
    plan = plan_tuning("embedded", grid=["tau=0.6,1.0", "law.learning_rate=5e-4,1e-3"], search="grid")
    run = search(plan, bowl)
    assert len(run) == 4 == plan.max_trials
    assert plan.choice.values == {"tau": 0.6, "learning_rate": 5e-4}  # 0.6 and 1.0 are as far from 0.8


def trials_with(errors):
    """Return a function that runs trials whose four batches have the errors given for their learning rate."""
    return lambda specs: [
        with_errors(synthetic_record(spec, 0), errors[spec.settings["learning_rate"]]) for spec in specs
    ]


def with_errors(record, errors):
    for line, wrong in zip(record.batches, errors, strict=True):
        line["wrong"] = wrong
    return record


@pytest.mark.parametrize(("choose", "chosen"), [("lowest", 1e-3), ("gentlest", 5e-4)])
def test_gentlest_is_the_smallest_learning_rate_that_is_not_significantly_worse(choose, chosen):
    plan = plan_tuning("embedded", grid=["learning_rate=2e-4,5e-4,1e-3,2e-3"], choose=choose)
    errors = {1e-3: [20, 20, 20, 20], 5e-4: [22, 19, 21, 19], 2e-4: [22, 23, 22, 24], 2e-3: [21, 20, 19, 21]}
    list(run_search(plan, trials_with(errors)))
    assert plan.choice.values == {"learning_rate": chosen}
    assert {trial.values["learning_rate"] for trial in plan.tied} == {5e-4, 1e-3, 2e-3}
    document = tuning_document(plan, command="driftlaw tune", folder="embedded")
    assert document["choose"] == choose
    assert document["chosen"] == {"learning_rate": chosen}
    assert {trial["tried"]["learning_rate"]: trial["tied"] for trial in document["trials"]}[2e-4] is False


def test_without_a_learning_rate_gentlest_is_lowest():
    plan = plan_tuning("embedded", grid=["tau=0.6,0.8"], choose="gentlest")
    search(plan, bowl)
    assert plan.choice is plan.lowest


def test_settings_at_the_boundary_of_the_grid_are_listed():
    plan = plan_tuning("embedded", grid=["tau=0.6,0.8", "learning_rate=1e-3", "grouping=tensor,module"])
    assert plan.at_boundary({"tau": 0.6, "learning_rate": 1e-3, "grouping": "tensor"}) == ["tau"]
    assert plan.at_boundary({"tau": 0.8, "learning_rate": 1e-3, "grouping": "module"}) == []  # the preset's is 1.0


def test_values_of_any_setting_can_be_tried():
    plan = plan_tuning("embedded", method="tent", grid=["learning_rate=1e-4,1e-2"])
    assert plan.start == {"learning_rate": 1e-3}
    assert plan.file_name == "embedded-tent.json"
    words = plan_tuning("embedded", grid=["grouping=tensor,module"])
    assert [spec.settings["grouping"] for spec in search(words, lambda settings: 30)] == ["tensor", "module"]


def test_the_error_of_a_trial_is_the_mean_over_seeds_and_domains():
    plan = plan_tuning("embedded", grid=["tau=1.0"], seeds="1-2")
    (trial,) = run_search(plan, lambda specs: [synthetic_record(spec, 10 * spec.seed) for spec in specs])
    assert trial.mean_error == 15.0
    assert trial.error_by_domain == dict.fromkeys(HELD_OUT, 15.0)
    assert len(trial.records) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grid": ["tau"]}, "such as tau=0.6"),
        ({"choose": "gentle"}, "gentlest"),
        ({"grid": ["taw=1"]}, "Did you mean 'tau'"),
        ({"grid": ["tau=1", "tau=2"]}, "twice"),
        ({"search": "random"}, "(?i)unknown search"),
        ({"method": "tent"}, "tent has no default grid"),
        ({"method": "law,tent"}, "one method at a time"),
        ({"method": "lew"}, "Did you mean 'law'"),
        ({"assignments": ["law.taw=1"]}, "Did you mean 'tau'"),
    ],
)
def test_wrong_options_are_errors(options, message):
    with pytest.raises(UsageError, match=message):
        plan_tuning("embedded", **options)


# --- the benchmark's corruptions are never used ----------------------------------------------------------------------


def stream_of(plan):
    return make_stream(dict(plan.specs[0].stream), limit=5)


def test_held_out_corruptions_are_the_default():
    stream = stream_of(plan_tuning("embedded"))
    check_held_out(stream.recipe())
    assert list(dict.fromkeys(batch.domain.name for batch in stream)) == HELD_OUT


def test_a_continual_stream_repeats_to_the_length_of_the_benchmark():
    domains = [batch.domain.name for batch in stream_of(plan_tuning("embedded"))]
    assert domains == 4 * HELD_OUT
    assert [batch.domain.name for batch in stream_of(plan_tuning("embedded", rounds=1))] == HELD_OUT
    gradual = plan_tuning("embedded", assignments=["stream.schedule=gradual"]).specs[0].stream
    assert gradual["schedule"] == "gradual"


@pytest.mark.parametrize("corruptions", ["all", "benchmark", "fog", '["spatter", "fog"]', *list_corruptions()])
def test_every_benchmark_corruption_is_an_error(corruptions):
    stream = stream_of(plan_tuning("embedded", assignments=[f"stream.corruptions={corruptions}"]))
    with pytest.raises(UsageError, match="on which results are reported"):
        check_held_out(stream.recipe())


@pytest.mark.parametrize("schedule", ["mixed", "gradual", "recurring"])
def test_benchmark_corruptions_are_found_in_every_schedule(tmp_path, schedule):
    preset = tmp_path / "innocent.toml"
    stream = f'[stream]\nschedule = "{schedule}"\ncorruptions = ["spatter", "frost"]\n'
    preset.write_text(f'{stream}[model]\nweights = "wrn_16_1-cifar10"\n')
    with pytest.raises(UsageError, match="The stream contains frost"):
        check_held_out(stream_of(plan_tuning(str(preset))).recipe())


def test_clean_images_alone_are_an_error_and_a_subset_of_the_held_out_is_not():
    with pytest.raises(UsageError, match="not held-out corruptions"):
        check_held_out(stream_of(plan_tuning("embedded", assignments=["stream.corruptions=clean"])).recipe())
    for corruptions in ("saturate", '["saturate", "clean"]', '["saturate+spatter"]'):
        check_held_out(stream_of(plan_tuning("embedded", assignments=[f"stream.corruptions={corruptions}"])).recipe())


def test_a_combination_with_a_benchmark_corruption_is_an_error():
    with pytest.raises(UsageError, match="contains fog, on which results are reported"):
        check_held_out({"corruptions": ["saturate", "spatter+fog"]})


def test_a_record_with_benchmark_corruptions_is_an_error():
    def smuggled(specs):
        record = synthetic_record(specs[0], 1)
        record.header["stream"]["corruptions"].append("snow")
        return [record]

    with pytest.raises(UsageError, match="snow"):
        list(run_search(plan_tuning("embedded", grid=["tau=1.0"]), smuggled))


# --- document -------------------------------------------------------------------------------------------------


def test_the_document_has_all_trials_and_the_choice(tmp_path):
    plan = plan_tuning("embedded", assignments=["law.grouping=module", "step.precision=bf16"])
    run = search(plan, bowl)
    write_tuning(tuning_document(plan, command="driftlaw tune embedded", folder="embedded"), tmp_path / "a.json")
    document = json.loads((tmp_path / "a.json").read_text())
    assert document["chosen"] == {"learning_rate": 5e-4, "tau": 0.8, "consistency_weight": 0.1}
    assert document["settings"] == document["chosen"] | {"grouping": "module"}  # not how a step was run
    assert document["mean_error"] == min(trial["mean_error"] for trial in document["trials"]) == 20.0
    assert [name for trial in document["trials"] for name in trial["records"]] == [spec.file_name for spec in run]
    assert document["command"] == "driftlaw tune embedded"


def test_another_model_has_its_own_file_and_records():
    own, other = plan_tuning("cifar10-c"), plan_tuning("cifar10-c", model="wrn_28_10-longer")
    assert (own.file_name, other.file_name) == ("cifar10-c.json", "cifar10-c-wrn_28_10-longer.json")
    assert other.specs[0].model["weights"] == "wrn_28_10-longer"
    assert other.specs[0].file_name != own.specs[0].file_name
    same = plan_tuning("cifar10-c", model=own.specs[0].model["weights"])
    assert same.file_name == own.file_name
    set_otherwise = plan_tuning("cifar10-c", assignments=["model.weights=wrn_28_10-longer"])
    assert set_otherwise.file_name == other.file_name
    back = plan_tuning("cifar10-c", assignments=["model.weights=x"], model=own.specs[0].model["weights"])
    assert back.file_name == own.file_name
    embedded = plan_tuning("cifar10-c", model="embedded").specs[0]
    assert embedded.model["weights"] == plan_tuning("embedded").specs[0].model["weights"]


@pytest.mark.parametrize("network", [None, "wrn_28_10-longer", "here/longer net.safetensors", "embedded"])
def test_settings_written_for_a_model_are_read_for_it(tmp_path, network):
    plan = plan_tuning("cifar10-c", model=network)
    search(plan, bowl)
    document = tuning_document(plan, command="driftlaw tune", folder="there", sha256="a" * 64)
    write_tuning(document, tmp_path / plan.file_name)
    for sha256 in ("a" * 64, ""):
        found = read_tuned(tmp_path, "cifar10-c", network, lambda weights, sha256=sha256: sha256)
        assert found == document["settings"]
