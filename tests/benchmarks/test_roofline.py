"""Tests of benchmarks.roofline: counts against values computed by hand. Timing of rates is replaced by a constant."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from benchmarks import roofline
from benchmarks.cases import BenchCase, BenchPlan
from benchmarks.models import BenchModel, make_models
from benchmarks.targets import BASELINE_VARIANTS, Variant
from benchmarks.timing import Repetitions

CPU = torch.device("cpu")
FORWARD = BASELINE_VARIANTS[0]


class OneConvolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1, bias=False)

    def forward(self, images):
        return self.conv(images).relu().mean(dim=(2, 3))


@pytest.fixture(autouse=True)
def _constant_time(monkeypatch):
    def run_once(work, device, at_least=0.0):
        work()
        return 0.001

    monkeypatch.setattr(roofline, "_fastest", run_once)


@pytest.fixture
def small():
    return BenchModel("one", OneConvolution().eval(), side=8)


def count_work(variant, model, batch_size):
    return roofline.count_work(BenchCase(BenchPlan(variants=[variant], device=CPU), model, batch_size), variant)


def test_work_of_one_convolution(small):
    work = count_work(FORWARD, small, 2)
    pixels, images, weight = 2 * 8 * 8, 4 * 2 * 3 * 8 * 8, 4 * 4 * 3 * 9
    assert work["operations"] == 2 * pixels * 4 * 27
    assert work["least_bytes"] == images + weight + 4 * pixels * 4
    relu, mean = 2 * 4 * pixels * 4, 4 * pixels * 4 + 4 * 2 * 4
    assert work["bytes_as_written"] == work["least_bytes"] + relu + mean


def test_views_are_free_and_in_place_writes_are_counted():
    values = torch.zeros(10)
    with roofline.MemoryTraffic() as traffic:
        values.view(2, 5).t()
        assert traffic.total == 0
        values.add_(1)
    assert traffic.total == 80


def test_law_step_costs_about_eight_forward_passes():
    (model,) = make_models(["wrn_10_1"], side=16)
    forward = count_work(FORWARD, model, 4)
    law = count_work(Variant("law", "law"), model, 4)
    assert 6 < law["operations"] / forward["operations"] < 9
    assert law["bytes_as_written"] > law["least_bytes"] > forward["least_bytes"]


def test_largest_convolution_has_the_most_operations():
    (model,) = make_models(["wrn_16_1"], side=16)
    shape = roofline.largest_convolution(model, 5)
    assert shape["input"][0] == 5
    assert shape["weight"][2:] == [3, 3]
    assert shape["stride"] == [1, 1]


def test_row_has_the_limit_and_the_ratio_to_it(small):
    plan = BenchPlan(models=[small], batch_sizes=[2], variants=[FORWARD], device=CPU)
    record = roofline.measure_roofline(plan, Repetitions(rounds=2, steps=1, warm_up=1))
    (row,) = record["rows"]
    assert row["floor_milliseconds"] == max(row["operations_milliseconds"], row["least_bytes_milliseconds"])
    assert row["times_above_floor"] == pytest.approx(row["milliseconds"]["median"] / row["floor_milliseconds"])
    assert row["precision"] == "float32"
    assert record["rule"].startswith("operations are")
    assert json.loads(json.dumps(record)) == record
