"""The floor of a step: counts against what can be worked out by hand, rates that are rates."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from benchmarks import floor
from benchmarks.cases import Cell, Plan
from benchmarks.models import Network, make_networks
from benchmarks.timing import Pace
from benchmarks.variants import REFERENCE_VARIANTS, Variant

CPU = torch.device("cpu")
FORWARD, PLAIN_TENT, _ = REFERENCE_VARIANTS


class OneConvolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1, bias=False)

    def forward(self, images):
        return self.conv(images).relu().mean(dim=(2, 3))


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    def once(work, device, at_least=0.0):
        work()
        return 0.001

    monkeypatch.setattr(floor, "_fastest", once)


@pytest.fixture
def small():
    return Network("one", OneConvolution().eval(), side=8)


def count_work(variant, network, batch_size):
    return floor.count_work(Cell(Plan(variants=[variant], device=CPU), network, batch_size), variant)


def test_the_work_of_one_convolution_is_what_a_hand_counts(small):
    work = count_work(FORWARD, small, 2)
    pixels, images, weight = 2 * 8 * 8, 4 * 2 * 3 * 8 * 8, 4 * 4 * 3 * 9
    assert work["operations"] == 2 * pixels * 4 * 27
    assert work["least_bytes"] == images + weight + 4 * pixels * 4
    relu, mean = 2 * 4 * pixels * 4, 4 * pixels * 4 + 4 * 2 * 4
    assert work["bytes_as_written"] == work["least_bytes"] + relu + mean


def test_views_cost_nothing_and_writing_in_place_does():
    values = torch.zeros(10)
    with floor._Traffic() as traffic:
        values.view(2, 5).t()
        assert traffic.total == 0
        values.add_(1)
    assert traffic.total == 80


def test_a_step_of_law_is_about_eight_forward_passes():
    (network,) = make_networks(["wrn_10_1"], side=16)
    forward = count_work(FORWARD, network, 4)
    law = count_work(Variant("law", "law"), network, 4)
    assert 6 < law["operations"] / forward["operations"] < 9
    assert law["bytes_as_written"] > law["least_bytes"] > forward["least_bytes"]


def test_the_busiest_convolution_is_the_one_with_most_operations():
    (network,) = make_networks(["wrn_16_1"], side=16)
    shape = floor.busiest_convolution(network, 5)
    assert shape["input"][0] == 5
    assert shape["weight"][2:] == [3, 3]
    assert shape["stride"] == [1, 1]


def test_a_row_says_what_binds_and_how_far_above_the_step_stands(small):
    plan = Plan(networks=[small], batch_sizes=[2], variants=[FORWARD], device=CPU)
    record = floor.measure_floor(plan, Pace(rounds=2, steps=1, warm_up=1))
    (row,) = record["rows"]
    assert row["floor_milliseconds"] == max(row["operations_milliseconds"], row["least_bytes_milliseconds"])
    assert row["times_above_floor"] == pytest.approx(row["milliseconds"]["median"] / row["floor_milliseconds"])
    assert row["precision"] == "float32"
    assert record["rule"].startswith("Operations are")
    assert json.loads(json.dumps(record)) == record
