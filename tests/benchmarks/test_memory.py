"""Tests of benchmarks.memory."""

from __future__ import annotations

import json

import pytest
import torch

from benchmarks.cases import BenchPlan
from benchmarks.memory import allocated_bytes, measure_memory, measure_peak
from benchmarks.models import make_models
from benchmarks.targets import BASELINE_VARIANTS, Variant


@pytest.fixture(scope="module")
def plan():
    models = make_models(["wrn_10_1"], side=16)
    variants = [*BASELINE_VARIANTS, Variant("law", "law")]
    return BenchPlan(models=models, batch_sizes=[8], variants=variants, device=torch.device("cpu"))


@pytest.fixture(scope="module")
def case(plan):
    return next(plan.cases())


def test_peak_and_remaining_bytes_are_distinguished():
    kept = []

    def work():
        kept.append(torch.zeros(1000))
        torch.zeros(50_000).sum()

    remaining, peak = allocated_bytes(work)
    assert remaining == 4000
    assert peak >= 204_000
    assert peak < 1.1 * 204_000  # the allocator rounds, and the sum is a tensor too


def test_naive_law_holds_model_fisher_copy_and_gradients(case):
    peak = measure_peak(case, BASELINE_VARIANTS[2])
    weights = 4 * case.model.parameters
    assert peak["held_bytes"] >= 3 * weights * 0.95
    assert peak["peak_bytes"] > peak["held_bytes"]


def test_shares_are_relative_to_naive_law(plan):
    record = measure_memory(plan)
    shares = {row["method"]: row["share_of_plain_law"] for row in record["rows"]}
    assert shares["plain_law"] == 1
    assert shares["forward"] < shares["plain_tent"] < 1
    assert json.loads(json.dumps(record)) == record
