"""What a plan says of what is measured, and the record it closes."""

from __future__ import annotations

import pytest
import torch

from benchmarks.cases import Plan
from benchmarks.models import make_networks
from benchmarks.variants import REFERENCE_VARIANTS, Variant
from driftlaw.errors import UsageError

CPU = torch.device("cpu")
LAW = Variant("law", "law")


@pytest.fixture(scope="module")
def plan():
    networks = make_networks(["wrn_10_1", "wrn_16_1"], side=8)
    return Plan(networks=networks, batch_sizes=[2, 4], variants=[LAW, Variant("nobody", "nobody")], device=CPU, seed=3)


def test_every_network_comes_with_every_batch_size(plan):
    found = [(cell.network.name, cell.batch_size) for cell in plan.cells()]
    assert found == [("wrn_10_1", 2), ("wrn_10_1", 4), ("wrn_16_1", 2), ("wrn_16_1", 4)]


def test_variants_that_cannot_be_measured_stand_apart(plan):
    assert plan.fit == [LAW]
    assert [entry["label"] for entry in plan.left_out] == ["nobody"]


def test_two_variants_of_one_name_are_refused():
    with pytest.raises(UsageError, match="label of its own"):
        _ = Plan(variants=[LAW, Variant("law", "tent")], device=CPU).fit


def test_a_contender_has_the_images_of_its_cell(plan):
    cell = next(plan.cells())
    contender = cell.contender(REFERENCE_VARIANTS[0])
    assert contender.batches[0].shape == (2, 3, 8, 8)
    assert torch.equal(contender.batches[0], cell.contender(REFERENCE_VARIANTS[0]).batches[0])


def test_a_record_says_how_and_what_and_where_in_this_order(plan):
    record = plan.record("step", {"rounds": 7}, rows=[])
    assert list(record)[:5] == ["bench", "seed", "rounds", "left_out", "rows"]
    assert record["seed"] == 3
    assert record["device"]["type"] == "cpu"
