"""Scaling along every axis, with ranges so short that it is over at once."""

from __future__ import annotations

import json

import pytest
import torch

from benchmarks import memory
from benchmarks.cases import Cell, Plan
from benchmarks.models import make_networks
from benchmarks.scaling import Ranges, along_stream, list_axes, make_axes, measure_scaling
from benchmarks.timing import Pace
from benchmarks.variants import REFERENCE_VARIANTS, Variant
from driftlaw.errors import UsageError

CPU = torch.device("cpu")
LAW_TWICE = (REFERENCE_VARIANTS[2], Variant("law", "law"))
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


def measure(axes, variants=LAW_TWICE, **options):
    plan, pace = Plan(variants=variants, device=CPU), Pace(rounds=1, steps=1, warm_up=0)
    return measure_scaling(axes, plan, pace, ranges=SHORT, **options)


def test_every_axis_has_a_row_a_point_and_variant():
    record = measure(["batch_size", "depth"])
    batch_size, depth = record["axes"]
    assert [row["value"] for row in batch_size["rows"]] == [2, 2, 4, 4]
    assert [row["model"] for row in depth["rows"]] == ["wrn_10_1"] * 2
    assert all(row["milliseconds"]["median"] > 0 and row["peak_bytes"] > 0 for row in batch_size["rows"])
    assert json.loads(json.dumps(record)) == record


def test_more_images_take_more_memory():
    rows = measure(["batch_size"], variants=[Variant("tent", "tent")])["axes"][0]["rows"]
    assert rows[0]["peak_bytes"] < rows[1]["peak_bytes"]


def test_the_number_of_tensors_is_that_of_the_network():
    ((value, model, _),) = make_axes(SHORT)["tensors"].points
    assert value == make_networks([model])[0].tensors


def test_a_stream_is_cut_into_windows_and_its_growth_told():
    (network,) = make_networks(["wrn_10_1"], side=8)
    norm = Variant("norm", "norm")
    told = along_stream(Cell(Plan(variants=[norm], device=CPU), network, 2), norm, batches=12, windows=4)
    assert [window["batches"] for window in told["windows"]] == [3, 6, 9, 12]
    assert all(window["held_bytes"] > 0 for window in told["windows"])
    assert told["growth"]["milliseconds"] > 0
    assert told["growth"]["held_bytes"] < 1.5


def test_the_references_do_not_walk_the_long_stream():
    record = measure(["stream"], batches=4, windows=2)
    assert [entry["label"] for entry in record["stream"]] == ["law"]


def test_an_unknown_axis_names_its_neighbour():
    assert list_axes() == ["batch_size", "depth", "width", "tensors", "stream"]
    with pytest.raises(UsageError, match="Did you mean 'depth'"):
        measure(["depht"])
