"""Settings chosen on held-out corruptions: what is tried, what is chosen, and that the fifteen are never looked at."""

import json
from pathlib import Path

import pytest

from driftlaw.corruptions import list_corruptions
from driftlaw.errors import UsageError
from driftlaw.experiments.paper import read_tuned
from driftlaw.experiments.tuning import (
    at_the_edge,
    check_networks,
    plan_tuning,
    refuse_benchmark,
    tune,
    tuning_document,
)
from driftlaw.records import RunRecord
from driftlaw.records.tuning_file import write_tuning
from driftlaw.streams import make_stream

HELD_OUT = list_corruptions("held_out")


def made_up(cell, error):
    """Return the record of a cell that errs on ``error`` of 100 images in each domain."""
    domains = enumerate(cell.stream["corruptions"] if isinstance(cell.stream["corruptions"], list) else HELD_OUT)
    lines = [
        {"batch": number, "segment": number, "domain": {"name": name, "severity": 5, "round": 0}, "images": 100}
        | {"wrong": error, "facts": {}, "timing": {"seconds": 1.0}}
        for number, name in domains
    ]
    header = {"stream": {"corruptions": [line["domain"]["name"] for line in lines]}, "model": {"sha256": "a" * 64}}
    return RunRecord(header, lines, {"closing": True}, Path(cell.file_name))


def searched(plan, error_of):
    """Search with a made-up error; return the outcome and what was run, in order."""
    run = []

    def run_cells(cells):
        run.extend(cells)
        return [made_up(cell, error_of(cell.settings)) for cell in cells]

    return tune(plan, run_cells), run


def bowl(settings):
    """Lowest at tau 0.8 and a learning rate of 5e-4."""
    return round(20 + 50 * abs(settings["tau"] - 0.8) + 2e4 * abs(settings["learning_rate"] - 5e-4))


def test_the_default_grid_lies_around_the_presets_values():
    plan = plan_tuning("cifar100-c")
    assert plan.start == {"learning_rate": 5e-5, "tau": 0.6, "consistency_weight": 1.0}
    assert plan.grid == {
        "learning_rate": [1e-5, 2.5e-5, 5e-5, 1e-4],
        "tau": (0.6, 0.8, 1.0, 1.3),
        "consistency_weight": [0.3, 1.0, 3.0],
    }


def test_coordinates_find_the_lowest_in_fewer_trials_than_the_grid_has():
    plan = plan_tuning("embedded")
    outcome, run = searched(plan, bowl)
    assert outcome.choice.values == {"learning_rate": 5e-4, "tau": 0.8, "consistency_weight": 0.1}
    assert len(run) == len(outcome.trials) <= plan.most_trials < 4 * 4 * 3
    assert len({json.dumps(trial.values) for trial in outcome.trials}) == len(outcome.trials)


def test_the_presets_own_values_are_tried_first_even_where_the_grid_leaves_them_out():
    for search in ("coordinate", "grid"):
        outcome, _ = searched(plan_tuning("embedded", grid=["tau=0.5,0.7"], search=search), lambda settings: 30)
        assert outcome.trials[0].values == {"tau": 1.0}
        assert outcome.choice is outcome.trials[0]  # of equals, the nearest to the preset


def test_a_grid_tries_every_combination():
    plan = plan_tuning("embedded", grid=["tau=0.6,1.0", "law.learning_rate=5e-4,1e-3"], search="grid")
    outcome, run = searched(plan, bowl)
    assert len(run) == 4 == plan.most_trials
    assert outcome.choice.values == {"tau": 0.6, "learning_rate": 5e-4}  # 0.6 and 1.0 are as far from 0.8


def noisy(errors):
    """Return a way to run cells whose four batches err as told by their learning rate."""
    return lambda cells: [with_errors(made_up(cell, 0), errors[cell.settings["learning_rate"]]) for cell in cells]


def with_errors(record, errors):
    for line, wrong in zip(record.batches, errors, strict=True):
        line["wrong"] = wrong
    return record


@pytest.mark.parametrize(("choose", "chosen"), [("lowest", 1e-3), ("gentlest", 5e-4)])
def test_the_gentlest_is_the_smallest_rate_of_those_that_cannot_be_told_from_the_lowest(choose, chosen):
    plan = plan_tuning("embedded", grid=["learning_rate=2e-4,5e-4,1e-3,2e-3"], choose=choose)
    errors = {1e-3: [20, 20, 20, 20], 5e-4: [22, 19, 21, 19], 2e-4: [22, 23, 22, 24], 2e-3: [21, 20, 19, 21]}
    outcome = tune(plan, noisy(errors))
    assert outcome.choice.values == {"learning_rate": chosen}
    assert {trial.values["learning_rate"] for trial in outcome.tied} == {5e-4, 1e-3, 2e-3}
    document = tuning_document(plan, outcome, command="driftlaw tune", folder="embedded")
    assert document["choose"] == choose
    assert document["chosen"] == {"learning_rate": chosen}
    assert {trial["tried"]["learning_rate"]: trial["tied"] for trial in document["trials"]}[2e-4] is False


def test_without_a_learning_rate_the_gentlest_is_the_lowest():
    plan = plan_tuning("embedded", grid=["tau=0.6,0.8"], choose="gentlest")
    outcome, _ = searched(plan, bowl)
    assert outcome.choice is outcome.lowest


def test_a_choice_at_the_edge_of_the_grid_is_told():
    plan = plan_tuning("embedded", grid=["tau=0.6,0.8", "learning_rate=1e-3", "grouping=tensor,module"])
    assert at_the_edge(plan, {"tau": 0.6, "learning_rate": 1e-3, "grouping": "tensor"}) == ["tau"]
    assert at_the_edge(plan, {"tau": 0.8, "learning_rate": 1e-3, "grouping": "module"}) == []  # the preset's is 1.0


def test_values_of_any_setting_can_be_tried():
    plan = plan_tuning("embedded", method="tent", grid=["learning_rate=1e-4,1e-2"])
    assert plan.start == {"learning_rate": 1e-3}
    assert plan.file_name == "embedded-tent.json"
    words = plan_tuning("embedded", grid=["grouping=tensor,module"])
    assert [cell.settings["grouping"] for cell in words.cells_of({"grouping": "module"})] == ["module"]


def test_a_trials_error_is_the_mean_over_seeds_and_domains():
    plan = plan_tuning("embedded", grid=["tau=1.0"], seeds="1-2")
    (trial,) = tune(plan, lambda cells: [made_up(cell, 10 * cell.seed) for cell in cells]).trials
    assert trial.mean_error == 15.0
    assert trial.error_by_domain == dict.fromkeys(HELD_OUT, 15.0)
    assert len(trial.records) == 2


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"grid": ["tau"]}, "such as tau=0.6"),
        ({"choose": "gentle"}, "gentlest"),
        ({"grid": ["taw=1"]}, "Did you mean 'tau'"),
        ({"grid": ["tau=1", "tau=2"]}, "twice"),
        ({"search": "random"}, "unknown search"),
        ({"method": "tent"}, "there is no grid for tent"),
        ({"method": "law,tent"}, "one method"),
        ({"method": "lew"}, "Did you mean 'law'"),
        ({"assignments": ["law.taw=1"]}, "Did you mean 'tau'"),
    ],
)
def test_wrong_use_is_told(options, told):
    with pytest.raises(UsageError, match=told):
        plan_tuning("embedded", **options)


# --- the fifteen are never looked at ---------------------------------------------------------------------------------


def stream_of(plan):
    return make_stream(dict(plan.cells[0].stream), limit=5)


def test_held_out_corruptions_are_taken_where_the_preset_names_none():
    stream = stream_of(plan_tuning("embedded"))
    refuse_benchmark(stream)
    assert list(dict.fromkeys(batch.domain.name for batch in stream)) == HELD_OUT


def test_a_continual_stream_comes_round_until_it_is_about_as_long_as_the_benchmark():
    domains = [batch.domain.name for batch in stream_of(plan_tuning("embedded"))]
    assert domains == 4 * HELD_OUT
    assert [batch.domain.name for batch in stream_of(plan_tuning("embedded", rounds=1))] == HELD_OUT
    gradual = plan_tuning("embedded", assignments=["stream.schedule=gradual"]).cells[0].stream
    assert gradual["schedule"] == "gradual"


@pytest.mark.parametrize("corruptions", ["all", "benchmark", "fog", '["spatter", "fog"]', *list_corruptions()])
def test_any_of_the_fifteen_is_refused(corruptions):
    stream = stream_of(plan_tuning("embedded", assignments=[f"stream.corruptions={corruptions}"]))
    with pytest.raises(UsageError, match="on which results are reported"):
        refuse_benchmark(stream)


@pytest.mark.parametrize("schedule", ["mixed", "gradual", "recurring"])
def test_no_schedule_hides_them(tmp_path, schedule):
    preset = tmp_path / "innocent.toml"
    stream = f'[stream]\nschedule = "{schedule}"\ncorruptions = ["spatter", "frost"]\n'
    preset.write_text(f'{stream}[model]\nweights = "wrn_16_1-cifar10"\n')
    with pytest.raises(UsageError, match="the stream holds frost"):
        refuse_benchmark(stream_of(plan_tuning(str(preset))))


def test_clean_images_are_no_held_out_corruption_and_some_of_the_four_will_do():
    with pytest.raises(UsageError, match="none of the held-out"):
        refuse_benchmark(stream_of(plan_tuning("embedded", assignments=["stream.corruptions=clean"])))
    refuse_benchmark(stream_of(plan_tuning("embedded", assignments=["stream.corruptions=saturate"])))


def test_a_record_of_other_corruptions_is_no_trial():
    def smuggled(cells):
        record = made_up(cells[0], 1)
        record.header["stream"]["corruptions"].append("snow")
        return [record]

    with pytest.raises(UsageError, match="snow"):
        tune(plan_tuning("embedded", grid=["tau=1.0"]), smuggled)


# --- what is written -------------------------------------------------------------------------------------------------


def test_the_document_tells_what_was_tried_and_what_is_chosen(tmp_path):
    plan = plan_tuning("embedded", assignments=["law.grouping=module", "step.precision=bf16"])
    outcome, run = searched(plan, bowl)
    write_tuning(
        tuning_document(plan, outcome, command="driftlaw tune embedded", folder="embedded"), tmp_path / "a.json"
    )
    told = json.loads((tmp_path / "a.json").read_text())
    assert told["chosen"] == {"learning_rate": 5e-4, "tau": 0.8, "consistency_weight": 0.1}
    assert told["settings"] == told["chosen"] | {"grouping": "module"}  # not how a step was run
    assert told["mean_error"] == min(trial["mean_error"] for trial in told["trials"]) == 20.0
    assert [name for trial in told["trials"] for name in trial["records"]] == [cell.file_name for cell in run]
    assert told["command"] == "driftlaw tune embedded"


def test_another_network_has_a_file_and_records_of_its_own():
    own, other = plan_tuning("cifar10-c"), plan_tuning("cifar10-c", network="wrn_28_10-longer")
    assert (own.file_name, other.file_name) == ("cifar10-c.json", "cifar10-c-wrn_28_10-longer.json")
    assert other.cells[0].model["weights"] == "wrn_28_10-longer"
    assert other.cells[0].file_name != own.cells[0].file_name
    same = plan_tuning("cifar10-c", network=own.cells[0].model["weights"])
    assert same.file_name == own.file_name
    set_otherwise = plan_tuning("cifar10-c", assignments=["model.weights=wrn_28_10-longer"])
    assert set_otherwise.file_name == other.file_name
    back = plan_tuning("cifar10-c", assignments=["model.weights=x"], network=own.cells[0].model["weights"])
    assert back.file_name == own.file_name
    embedded = plan_tuning("cifar10-c", network="embedded").cells[0]
    assert embedded.model["weights"] == plan_tuning("embedded").cells[0].model["weights"]


@pytest.mark.parametrize("network", [None, "wrn_28_10-longer", "here/longer net.safetensors", "embedded"])
def test_what_is_written_for_a_network_is_read_for_it(tmp_path, network):
    plan = plan_tuning("cifar10-c", network=network)
    outcome, _ = searched(plan, bowl)
    document = tuning_document(plan, outcome, command="driftlaw tune", folder="there", sha256="a" * 64)
    write_tuning(document, tmp_path / plan.file_name)
    for sha256 in ("a" * 64, ""):
        found = read_tuned(tmp_path, "cifar10-c", network, lambda weights, sha256=sha256: sha256)
        assert found == document["settings"]


def test_it_is_told_after_every_trial():
    counts = []
    plan = plan_tuning("embedded", grid=["tau=0.6,0.8"])
    tune(
        plan,
        lambda cells: [made_up(cell, 10) for cell in cells],
        told=lambda outcome: counts.append(len(outcome.trials)),
    )
    assert counts == [1, 2, 3]


def test_trials_of_other_weights_are_refused():
    record = made_up(plan_tuning("embedded").cells[0], 1)
    check_networks([record, None], "a" * 64)
    with pytest.raises(UsageError, match="other weights"):
        check_networks([record], "b" * 64)
