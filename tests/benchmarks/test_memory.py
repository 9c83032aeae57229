"""Peak memory: what is counted is what a step allocates, and the plain LAW holds what it is known to hold."""

from __future__ import annotations

import json

import pytest
import torch

from benchmarks.cases import Plan
from benchmarks.memory import allocated_by, compare_memory, peak_of
from benchmarks.models import make_networks
from benchmarks.variants import REFERENCE_VARIANTS, Variant

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def network():
    return make_networks(["wrn_10_1"], side=16)[0]


@pytest.fixture(scope="module")
def plan(network):
    return Plan(networks=[network], batch_sizes=[8], variants=[*REFERENCE_VARIANTS, Variant("law", "law")], device=CPU)


@pytest.fixture(scope="module")
def cell(plan):
    return next(plan.cells())


def test_the_highest_point_and_what_is_left_are_told_apart():
    kept = []

    def work():
        kept.append(torch.zeros(1000))
        torch.zeros(5000).sum()

    left, highest = allocated_by(work)
    assert left == 4000
    assert 24_000 <= highest < 26_000


def test_the_plain_law_holds_its_network_a_copy_for_the_fisher_and_the_gradients(cell):
    found = peak_of(cell, REFERENCE_VARIANTS[2])
    weights = 4 * cell.network.parameters
    assert found["held_bytes"] >= 3 * weights * 0.95
    assert found["peak_bytes"] > found["held_bytes"]


def test_a_peak_is_the_same_when_it_is_measured_again(cell):
    first, second = (peak_of(cell, REFERENCE_VARIANTS[1]) for _ in range(2))
    assert first["peak_bytes"] == pytest.approx(second["peak_bytes"], rel=0.02)


def test_shares_are_of_the_plain_law(plan):
    record = compare_memory(plan)
    shares = {row["method"]: row["share_of_plain_law"] for row in record["rows"]}
    assert shares["plain_law"] == 1
    assert shares["forward"] < shares["plain_tent"] < 1
    assert json.loads(json.dumps(record)) == record
