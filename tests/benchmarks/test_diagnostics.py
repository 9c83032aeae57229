"""Tests of benchmarks.diagnostics on a tiny model."""

from __future__ import annotations

import json

import torch

from benchmarks.cases import BenchPlan
from benchmarks.diagnostics import diagnostics_overhead
from benchmarks.models import make_models
from benchmarks.targets import BASELINE_VARIANTS, Variant
from benchmarks.timing import Repetitions


def test_values_per_step_are_counted_and_baselines_skipped():
    (model,) = make_models(["wrn_10_1"], side=16)
    plan = BenchPlan(
        models=[model],
        batch_sizes=[4],
        variants=[*BASELINE_VARIANTS, Variant("law", "law"), Variant("tent", "tent")],
        device=torch.device("cpu"),
    )
    record = diagnostics_overhead(plan, Repetitions(rounds=2, steps=1, warm_up=1))
    law, tent = record["rows"]
    assert tent["numbers"] == 12  # entropy, number of predicted classes, and the shares of ten classes
    assert law["numbers"] == 12 + model.tensors - 2  # the weight of each tensor but those of the head
    assert json.loads(json.dumps(record)) == record
