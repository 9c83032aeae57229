"""Surgical tuning against its reference implementation, in float64, and which part of a network it adapts."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import driftlaw
from driftlaw.errors import UsageError
from driftlaw.profiling import count_flops
from tests.methods.images import TERMS, batches
from tests.reference.surgical import ReferenceSurgical
from tests.reference.tolerance import assert_same_step

PARTS = [
    ("stage", 1, ["stages.0"]),
    ("stage", 2, ["stages.1"]),
    ("stage", 3, ["stages.2", "norm."]),
    ("up_to", 2, ["conv.", "stages.0", "stages.1"]),
    ("up_to", 3, ["conv.", "stages.", "norm."]),
    ("from", 2, ["stages.1", "stages.2", "norm."]),
    ("from", 0, ["conv.", "stages.", "norm."]),
]


def compare(adapter, reference: ReferenceSurgical, learning_rate: float) -> None:
    for images in batches(3):
        torch.testing.assert_close(adapter(images), reference.step(images), rtol=0, atol=1e-12)
        assert_same_step(adapter.model, reference.model, reference.gradients, learning_rate, terms=TERMS)


@pytest.mark.parametrize("tuned", ["norm", "all"])
@pytest.mark.parametrize(("part", "stage", "prefixes"), PARTS)
def test_steps_equal_the_reference(network, part, stage, prefixes, tuned):
    adapter = driftlaw.adapt(network, "surgical", part=part, stage=stage, tuned=tuned)
    norm_only = tuned == "norm"
    reference = ReferenceSurgical(network, prefixes, norm_only=norm_only, optimizer="adam", learning_rate=1e-3)
    compare(adapter, reference, 1e-3)


def test_sgd_equals_the_reference(network):
    adapter = driftlaw.adapt(network, "surgical", part="from", stage=3, tuned="all", optimizer="sgd", learning_rate=0.1)
    prefixes = ["stages.2", "norm."]
    reference = ReferenceSurgical(network, prefixes, norm_only=False, optimizer="sgd", learning_rate=0.1)
    compare(adapter, reference, 0.1)


@pytest.mark.parametrize(("part", "stage", "prefixes"), [*PARTS, ("stage", 0, ["conv."])])
def test_only_the_part_is_adapted_and_never_the_head(network, part, stage, prefixes):
    adapter = driftlaw.adapt(network, "surgical", part=part, stage=stage, tuned="all")
    adapter(batches(1)[0])
    for name, value in network.named_parameters():
        inside = any(name.startswith(prefix) for prefix in prefixes)
        assert torch.equal(adapter.model.get_parameter(name), value) != inside, name


def test_the_norm_layers_of_the_whole_network_equal_tent(network):
    surgical, tent = driftlaw.adapt(network, "surgical", part="from", stage=0), driftlaw.adapt(network, "tent")
    for images in batches(3):
        assert torch.equal(surgical(images), tent(images))


def test_an_unknown_stage_is_refused(network):
    with pytest.raises(UsageError, match="It has 4 stages"):
        driftlaw.adapt(network, "surgical", stage=4)


def test_a_part_without_norm_layers_is_refused(network):
    with pytest.raises(UsageError, match=r"part \(stem\) has no norm layers.* tuned='all'"):
        driftlaw.adapt(network, "surgical", part="stage", stage=0)


@pytest.mark.parametrize("settings", [{"statistics": "mixed"}, {"statistics": "window", "window": 8}])
def test_small_batches_equal_tent(network, settings):
    surgical = driftlaw.adapt(network, "surgical", part="from", stage=0, **settings)
    tent = driftlaw.adapt(network, "tent", **settings)
    for images in batches(3):
        assert torch.equal(surgical(images[:2]), tent(images[:2]))


def step_cost(network: nn.Module, **settings) -> float:
    adapter = driftlaw.adapt(network, "surgical", **settings)
    _, forward = count_flops(lambda: adapter.predict(batches(1)[0]))
    _, step = count_flops(lambda: adapter(batches(1)[0]))
    return step / forward


def test_the_counted_cost_is_what_it_declares_and_a_later_part_costs_less(network):
    adapter = driftlaw.adapt(network, "surgical")
    default = step_cost(network)
    assert default == pytest.approx(adapter.forward_cost + adapter.backward_cost, rel=0.1)
    assert 1 < step_cost(network, part="from", stage=3) < step_cost(network, part="from", stage=2) < default
