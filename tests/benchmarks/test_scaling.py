"""Tests of benchmarks.scaling with short ranges."""

from __future__ import annotations

import json

import pytest
import torch

from benchmarks import memory
from benchmarks.cases import BenchCase, BenchPlan
from benchmarks.models import make_models
from benchmarks.scaling import Ranges, growth, list_axes, make_axes, measure_scaling, measure_stream
from benchmarks.targets import BASELINE_VARIANTS, Variant
from benchmarks.timing import Repetitions
from driftlaw.errors import UsageError

CPU = torch.device("cpu")
NAIVE_AND_LAW = (BASELINE_VARIANTS[2], Variant("law", "law"))
SHORT = Ranges(
    batch_size=4,
    model="wrn_10_1",
    batch_sizes=(2, 4),
    depths=(10,),
    depth_width=1,
    widths=(1,),
    width_depth=10,
    tensor_depths=(10,),
    side=8,
    tensor_batch_size=2,
)


@pytest.fixture(autouse=True)
def _few_steps(monkeypatch):
    monkeypatch.setattr(memory, "STEPS", 2)


def measure(axes, variants=NAIVE_AND_LAW, **options):
    plan, repetitions = BenchPlan(variants=variants, device=CPU), Repetitions(rounds=1, steps=1, warm_up=0)
    return measure_scaling(axes, plan, repetitions, ranges=SHORT, **options)


def test_axes_have_one_row_per_point_and_variant():
    record = measure(["batch_size", "depth"])
    batch_size, depth = record["axes"]
    assert [row["value"] for row in batch_size["rows"]] == [2, 2, 4, 4]
    assert [row["model"] for row in depth["rows"]] == ["wrn_10_1"] * 2
    assert json.loads(json.dumps(record)) == record


def test_peak_memory_grows_with_the_batch_size():
    rows = measure(["batch_size"], variants=[Variant("tent", "tent")])["axes"][0]["rows"]
    assert rows[0]["peak_bytes"] < rows[1]["peak_bytes"]


def test_values_of_the_tensor_axis_are_tensor_counts():
    ((value, model, _),) = make_axes(SHORT)["tensors"].points
    assert value == make_models([model])[0].tensors


def test_stream_is_divided_into_windows():
    (model,) = make_models(["wrn_10_1"], side=8)
    norm = Variant("norm", "norm")
    entry = measure_stream(BenchCase(BenchPlan(variants=[norm], device=CPU), model, 2), norm, batches=12, windows=4)
    assert [window["batches"] for window in entry["windows"]] == [3, 6, 9, 12]
    assert entry["growth"] == growth(entry["windows"])


def test_growth_compares_windows_after_the_first():
    windows = [
        {"milliseconds": {"median": median}, "held_bytes": held}
        for median, held in [(9.0, 50), (2.0, 100), (2.0, 100), (4.0, 110), (3.0, 120)]
    ]
    assert growth(windows) == {"milliseconds": 1.5, "milliseconds_halves": 1.75, "held_bytes": 1.2}


def test_baselines_are_skipped_on_the_stream_axis():
    record = measure(["stream"], batches=4, windows=2)
    assert [entry["label"] for entry in record["stream"]] == ["law"]


def test_unknown_axis_is_refused_with_a_suggestion():
    assert list_axes() == ["batch_size", "depth", "width", "tensors", "stream"]
    with pytest.raises(UsageError, match="Did you mean 'depth'"):
        measure(["depht"])
