"""The benchmark of a step, on a network and images so small that it is over at once."""

from __future__ import annotations

import json

import pytest
import torch

from benchmarks import timing
from benchmarks.cases import Plan
from benchmarks.models import make_batches, make_networks
from benchmarks.step import compare_steps, with_ratios
from benchmarks.timing import Pace
from benchmarks.variants import REFERENCE_VARIANTS, Contender, Variant, default_variants, parse_variant, sort_out
from driftlaw.errors import UsageError

CPU = torch.device("cpu")
EXACT = Variant("law", "law")


@pytest.fixture(scope="module")
def networks():
    return make_networks(["wrn_10_1"], side=16)


@pytest.fixture(scope="module")
def record(networks):
    variants = [*REFERENCE_VARIANTS, EXACT, Variant("unheard-of", "law", {"wings": 2})]
    plan = Plan(networks=networks, batch_sizes=[4], variants=variants, device=CPU)
    return compare_steps(plan, Pace(rounds=2, steps=1, warm_up=1))


def test_every_variant_has_a_row_with_its_times_and_its_peak(record):
    assert [row["label"] for row in record["rows"]] == ["forward only", "plain TENT", "plain LAW", "law"]
    for row in record["rows"]:
        assert len(row["milliseconds_by_round"]) == 2
        assert 0 < row["milliseconds"]["min"] <= row["milliseconds"]["median"]
        assert row["peak_bytes"] >= row["held_bytes"] > 0


def test_the_references_stand_at_one_against_themselves(record):
    rows = {row["method"]: row for row in record["rows"]}
    assert rows["plain_law"]["times_faster_than_plain_law"] == 1
    assert rows["plain_tent"]["times_faster_than_plain_tent"] == 1
    assert rows["plain_law"]["share_of_plain_law"] == 1


def test_what_cannot_be_measured_is_left_out_and_named(record):
    ((label, why),) = [(entry["label"], entry["why"]) for entry in record["left_out"]]
    assert label == "unheard-of"
    assert "wings" in why


def test_a_record_is_plain_data_that_says_where_it_was_made(record):
    assert json.loads(json.dumps(record)) == record
    assert record["device"]["type"] == "cpu"
    assert record["clock"] == "perf_counter"


def test_ratios_are_of_medians():
    rows = [
        {"method": "plain_law", "milliseconds": {"median": 12.0}},
        {"method": "law", "milliseconds": {"median": 3.0}},
    ]
    ours = with_ratios(rows)[1]
    assert ours["times_faster_than_plain_law"] == 4
    assert ours["times_faster_than_plain_tent"] is None


def test_everybody_has_a_turn_in_every_round_and_the_first_changes(networks, monkeypatch):
    contenders = [Contender(variant, networks[0], 4, device=CPU) for variant in REFERENCE_VARIANTS]
    order = []
    monkeypatch.setattr(timing, "milliseconds", lambda contender, steps: order.append(contender.variant.method) or 1.0)
    taken = timing.take_turns(contenders, Pace(rounds=3, steps=1, warm_up=0))
    assert taken == [[1.0] * 3] * 3
    assert [order[place] for place in (0, 3, 6)] == ["forward", "plain_tent", "plain_law"]


def test_what_is_not_asked_for_is_usual_on_the_device():
    assert Pace.usual(CPU) == Pace(rounds=7, steps=1, warm_up=2)
    assert Pace.usual(torch.device("cuda"), steps=3, warm_up=0) == Pace(rounds=20, steps=3, warm_up=0)


def test_work_that_comes_every_third_step_is_timed_in_whole_cycles(networks):
    contender = Contender(REFERENCE_VARIANTS[0], networks[0], 4, device=CPU)
    contender.cycle = 3
    assert [contender.whole_cycles(steps) for steps in (1, 3, 4)] == [3, 3, 6]


def test_the_default_set_has_the_references_and_our_methods():
    labels = [variant.label for variant in default_variants()]
    assert labels[:3] == ["forward only", "plain TENT", "plain LAW"]
    assert {"norm", "tent", "law", "law, float32", "law, fast"} <= set(labels)


def test_methods_and_presets_that_nobody_knows_are_left_out():
    fit, left_out = sort_out([EXACT, Variant("nobody", "nobody"), Variant("x", "law", {}, "no")], CPU)
    assert fit == [EXACT]
    assert [entry["label"] for entry in left_out] == ["nobody", "x"]


@pytest.mark.parametrize("method", ["rmt", "gtta"])
def test_methods_that_need_the_training_data_get_some_made_up(networks, method, monkeypatch, tmp_path):
    monkeypatch.setenv("DRIFTLAW_DATA", str(tmp_path))
    contender = Contender(Variant(method, method), networks[0], 4, device=CPU)
    assert contender.run(1).logits.shape == (4, 10)
    assert not list(tmp_path.rglob("*"))


def test_on_a_cpu_without_a_compiler_compiled_steps_are_left_out(monkeypatch):
    monkeypatch.setattr("benchmarks.variants.has_cpp_compiler", lambda: False)
    compiled = Variant("law, compiled", "law", {"compiled": True})
    fit, left_out = sort_out([EXACT, compiled], CPU)
    assert fit == [EXACT]
    assert left_out == [{"label": "law, compiled", "why": "there is no C++ compiler here to compile it with"}]
    assert sort_out([compiled], torch.device("cuda"))[0] == [compiled]


def test_two_variants_of_one_name_are_refused():
    with pytest.raises(UsageError, match="called «law»: give each a label of its own"):
        sort_out([EXACT, Variant("law", "tent")], CPU)


@pytest.mark.parametrize("text", ["", "x:"])
def test_a_variant_without_a_method_is_refused(text):
    with pytest.raises(UsageError, match="names no method"):
        parse_variant(text)


def test_a_variant_is_read_as_it_is_written():
    assert parse_variant("half: law tau=0.5 grouping=module") == Variant(
        "half", "law", {"tau": 0.5, "grouping": "module"}
    )


def test_the_same_seed_gives_the_same_network_and_images():
    first, second = (make_networks(["wrn_10_1"], seed=3)[0].model.conv.weight for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(make_batches(2, 8, seed=1)[0], make_batches(2, 8, seed=1)[0])


def test_real_images_are_taken_in_turn():
    pool = torch.arange(3.0).view(3, 1, 1, 1).expand(3, 3, 8, 8) / 3
    batches = make_batches(2, 8, count=3, pool=pool)
    assert [(3 * batch[:, 0, 0, 0]).round().tolist() for batch in batches] == [[0, 1], [2, 0], [1, 2]]


def test_weights_of_a_network_that_is_not_measured_are_refused():
    with pytest.raises(UsageError, match="not measured"):
        make_networks(["wrn_10_1"], weights=["wrn_16_1-cifar10"])


def test_trained_weights_are_taken_where_they_fit():
    (network,) = make_networks(["wrn_16_1"], weights=["wrn_16_1-cifar10"])
    assert network.facts()["weights"] == "wrn_16_1-cifar10"


def test_a_forward_pass_learns_nothing_and_the_network_itself_is_never_touched(networks):
    before = {name: value.clone() for name, value in networks[0].model.state_dict().items()}
    for variant in (*REFERENCE_VARIANTS, EXACT):
        Contender(variant, networks[0], 4, device=CPU).run(2)
    assert all(torch.equal(value, before[name]) for name, value in networks[0].model.state_dict().items())


def test_without_a_checkout_the_plain_version_is_asked_for(monkeypatch, tmp_path, networks):
    from benchmarks import variants

    monkeypatch.setattr(variants, "PLAIN", tmp_path)
    variants.load_plain.cache_clear()
    with pytest.raises(UsageError, match="clone of the repository"):
        Contender(REFERENCE_VARIANTS[1], networks[0], 4, device=CPU)
    variants.load_plain.cache_clear()
