"""Tests of benchmarks.cases."""

from __future__ import annotations

import pytest
import torch

from benchmarks.cases import BenchPlan
from benchmarks.models import make_models
from benchmarks.targets import BASELINE_VARIANTS, Variant

CPU = torch.device("cpu")
LAW = Variant("law", "law")


@pytest.fixture(scope="module")
def plan():
    models = make_models(["wrn_10_1", "wrn_16_1"], side=8)
    return BenchPlan(
        models=models, batch_sizes=[2, 4], variants=[LAW, Variant("missing", "missing")], device=CPU, seed=3
    )


def test_cases_are_all_models_and_batch_sizes(plan):
    cases = [(case.model.name, case.batch_size) for case in plan.cases()]
    assert cases == [("wrn_10_1", 2), ("wrn_10_1", 4), ("wrn_16_1", 2), ("wrn_16_1", 4)]


def test_unsupported_variants_are_listed_separately(plan):
    assert plan.supported == [LAW]
    assert [entry["label"] for entry in plan.skipped] == ["missing"]


def test_targets_of_a_case_see_the_same_images(plan):
    case = next(plan.cases())
    target = case.target(BASELINE_VARIANTS[0])
    assert target.batches[0].shape == (2, 3, 8, 8)
    assert torch.equal(target.batches[0], case.target(BASELINE_VARIANTS[0]).batches[0])


def test_record_lists_protocol_results_and_device_in_this_order(plan):
    record = plan.record("step", {"rounds": 7}, rows=[])
    assert list(record)[:5] == ["bench", "seed", "rounds", "left_out", "rows"]
    assert record["seed"] == 3
    assert record["device"]["type"] == "cpu"
