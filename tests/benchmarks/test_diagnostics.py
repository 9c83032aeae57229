"""What recording facts costs, measured on steps that are over at once."""

from __future__ import annotations

import json

import torch

from benchmarks.cases import Plan
from benchmarks.diagnostics import compare_facts
from benchmarks.models import make_networks
from benchmarks.timing import Pace
from benchmarks.variants import REFERENCE_VARIANTS, Variant
from driftlaw.evaluation import diagnostics_to_json


def test_the_same_steps_are_timed_with_and_without_the_facts():
    (network,) = make_networks(["wrn_10_1"], side=16)
    plan = Plan(
        networks=[network],
        batch_sizes=[4],
        variants=[*REFERENCE_VARIANTS, Variant("law", "law"), Variant("tent", "tent")],
        device=torch.device("cpu"),
    )
    record = compare_facts(plan, Pace(rounds=2, steps=1, warm_up=1))
    law, tent = record["rows"]
    assert law["numbers"] == network.tensors - 2  # all but the head's weight and bias
    assert tent["numbers"] == 0
    assert law["with"]["median"] > 0
    assert law["cost"] > -1
    assert json.loads(json.dumps(record)) == record


def test_facts_are_kept_as_a_record_keeps_them():
    assert diagnostics_to_json({"a": torch.tensor([1 / 3, 2.0]), "b": torch.tensor(0.5), "c": 1 / 3}) == {
        "a": [0.333333, 2.0],
        "b": 0.5,
        "c": 0.333333,
    }
