"""Tests of benchmarks.step, timing and targets on a tiny model."""

from __future__ import annotations

import json

import pytest
import torch

from benchmarks import timing
from benchmarks.cases import BenchPlan
from benchmarks.models import make_batches, make_models
from benchmarks.step import measure_steps, with_ratios
from benchmarks.targets import (
    BASELINE_VARIANTS,
    BenchTarget,
    Variant,
    default_variants,
    parse_variant,
    select_supported,
)
from benchmarks.timing import Repetitions
from driftlaw.errors import UsageError

CPU = torch.device("cpu")
LAW = Variant("law", "law")


@pytest.fixture(scope="module")
def models():
    return make_models(["wrn_10_1"], side=16)


@pytest.fixture(scope="module")
def record(models):
    variants = [*BASELINE_VARIANTS, LAW, Variant("misspelt", "law", {"wings": 2})]
    plan = BenchPlan(models=models, batch_sizes=[4], variants=variants, device=CPU)
    return measure_steps(plan, Repetitions(rounds=2, steps=1, warm_up=1))


def test_every_variant_has_a_row_with_times_and_peak_memory(record):
    assert [row["label"] for row in record["rows"]] == ["forward only", "naive TENT", "naive LAW", "law"]
    for row in record["rows"]:
        assert len(row["milliseconds_by_round"]) == 2
        assert row["milliseconds"]["min"] == min(row["milliseconds_by_round"])
        assert row["peak_bytes"] >= row["held_bytes"] > 0


def test_ratio_of_a_baseline_to_itself_is_one(record):
    rows = {row["method"]: row for row in record["rows"]}
    assert rows["plain_law"]["times_faster_than_plain_law"] == 1
    assert rows["plain_tent"]["times_faster_than_plain_tent"] == 1
    assert rows["plain_law"]["share_of_plain_law"] == 1


def test_skipped_variants_are_in_the_record(record):
    ((label, why),) = [(entry["label"], entry["why"]) for entry in record["left_out"]]
    assert label == "misspelt"
    assert "wings" in why


def test_record_is_json_and_names_device_and_clock(record):
    assert json.loads(json.dumps(record)) == record
    assert record["device"]["type"] == "cpu"
    assert record["clock"] == "perf_counter"


def test_ratios_are_of_medians():
    rows = [
        {"method": "plain_law", "milliseconds": {"median": 12.0}},
        {"method": "law", "milliseconds": {"median": 3.0}},
    ]
    law = with_ratios(rows)[1]
    assert law["times_faster_than_plain_law"] == 4
    assert law["times_faster_than_plain_tent"] is None


def test_rounds_are_interleaved_and_the_first_target_changes(models, monkeypatch):
    targets = [BenchTarget(variant, models[0], 4, device=CPU) for variant in BASELINE_VARIANTS]
    order = []
    monkeypatch.setattr(
        timing, "milliseconds_per_step", lambda target, steps: order.append(target.variant.method) or 1.0
    )
    times = timing.measure_interleaved(targets, Repetitions(rounds=3, steps=1, warm_up=0))
    assert times == [[1.0] * 3] * 3
    assert [order[position] for position in (0, 3, 6)] == ["forward", "plain_tent", "plain_law"]


def test_default_repetitions_depend_on_the_device():
    assert Repetitions.default(CPU) == Repetitions(rounds=7, steps=1, warm_up=2)
    cuda = Repetitions.default(torch.device("cuda"), steps=3, warm_up=0)
    assert cuda == Repetitions(rounds=20, steps=3, warm_up=0)


def test_cyclic_work_is_timed_in_whole_cycles(models):
    target = BenchTarget(BASELINE_VARIANTS[0], models[0], 4, device=CPU)
    target.cycle = 3
    assert [target.whole_cycles(steps) for steps in (1, 3, 4)] == [3, 3, 6]


def test_default_variants():
    labels = [variant.label for variant in default_variants()]
    assert labels[:3] == ["forward only", "naive TENT", "naive LAW"]
    assert {"norm", "tent", "law", "law, float32", "law, fast"} <= set(labels)


def test_unknown_methods_and_presets_are_skipped():
    supported, skipped = select_supported([LAW, Variant("a", "missing"), Variant("b", "law", {}, "missing")], CPU)
    assert supported == [LAW]
    assert [entry["label"] for entry in skipped] == ["a", "b"]


@pytest.mark.parametrize("method", ["rmt", "gtta"])
def test_methods_that_need_training_data_get_random_images(models, method, monkeypatch, tmp_path):
    monkeypatch.setenv("DRIFTLAW_DATA", str(tmp_path))
    target = BenchTarget(Variant(method, method), models[0], 4, device=CPU)
    assert target.run(1).logits.shape == (4, 10)
    assert not list(tmp_path.rglob("*"))


def test_compiled_variants_are_skipped_on_a_cpu_without_compiler(monkeypatch):
    monkeypatch.setattr("benchmarks.targets.has_cpp_compiler", lambda: False)
    compiled = Variant("law, compiled", "law", {"compiled": True})
    supported, skipped = select_supported([LAW, compiled], CPU)
    assert supported == [LAW]
    assert skipped == [{"label": "law, compiled", "why": "compilation needs a C++ compiler, and none was found"}]
    assert select_supported([compiled], torch.device("cuda"))[0] == [compiled]


def test_duplicate_labels_are_refused():
    with pytest.raises(UsageError, match="Several variants have the label 'law'"):
        select_supported([LAW, Variant("law", "tent")], CPU)


@pytest.mark.parametrize("text", ["", "x:"])
def test_variant_needs_a_method(text):
    with pytest.raises(UsageError, match="has no method"):
        parse_variant(text)


def test_variant_is_parsed():
    assert parse_variant("half: law tau=0.5 grouping=module") == Variant(
        "half", "law", {"tau": 0.5, "grouping": "module"}
    )


def test_seed_determines_model_and_images():
    first, second = (make_models(["wrn_10_1"], seed=3)[0].model.conv.weight for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(make_batches(2, (8, 8), seed=1)[0], make_batches(2, (8, 8), seed=1)[0])


def test_segmentation_networks_have_images_of_two_sides():
    (model,) = make_models(["fpn_wrn_10_1"], side=8, width=12)
    assert (model.info()["side"], model.info()["width"]) == (8, 12)
    target = BenchTarget(BASELINE_VARIANTS[0], model, 2, device=CPU)
    assert target.run(1).shape == (2, 11, 8, 12)


def test_real_images_are_used_cyclically():
    pool = torch.arange(3.0).view(3, 1, 1, 1).expand(3, 3, 8, 8) / 3
    batches = make_batches(2, (8, 8), count=3, pool=pool)
    assert [(3 * batch[:, 0, 0, 0]).round().tolist() for batch in batches] == [[0, 1], [2, 0], [1, 2]]


def test_weights_of_other_models_are_refused():
    with pytest.raises(UsageError, match="not measured"):
        make_models(["wrn_10_1"], weights=["wrn_16_1-cifar10"])


def test_trained_weights_are_used():
    (model,) = make_models(["wrn_16_1"], weights=["wrn_16_1-cifar10"])
    assert model.info()["weights"] == "wrn_16_1-cifar10"


def test_targets_do_not_change_the_model(models):
    before = {name: value.clone() for name, value in models[0].model.state_dict().items()}
    for variant in (*BASELINE_VARIANTS, LAW):
        BenchTarget(variant, models[0], 4, device=CPU).run(2)
    assert all(torch.equal(value, before[name]) for name, value in models[0].model.state_dict().items())
