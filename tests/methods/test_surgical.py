"""Surgical tuning against the version written by hand, in float64, and which part of a network moves."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import driftlaw
from driftlaw.errors import UsageError
from driftlaw.profiling import count_flops
from tests.methods.images import batches
from tests.reference.surgical import ReferenceSurgical

PARTS = [
    ("stage", 1, ["stages.0"]),
    ("stage", 2, ["stages.1"]),
    ("stage", 3, ["stages.2", "norm."]),
    ("up_to", 2, ["conv.", "stages.0", "stages.1"]),
    ("up_to", 3, ["conv.", "stages.", "norm."]),
    ("from", 2, ["stages.1", "stages.2", "norm."]),
    ("from", 0, ["conv.", "stages.", "norm."]),
]


def expect_same(adapter, by_hand: ReferenceSurgical) -> None:
    for images in batches(3):
        torch.testing.assert_close(adapter(images), by_hand.step(images), rtol=0, atol=1e-10)
    for name, value in by_hand.model.named_parameters():
        torch.testing.assert_close(adapter.model.get_parameter(name).data, value.data, rtol=0, atol=1e-10)


@pytest.mark.parametrize("tuned", ["norm", "all"])
@pytest.mark.parametrize(("part", "stage", "beginnings"), PARTS)
def test_three_steps_equal_the_hand_written_ones(network, part, stage, beginnings, tuned):
    adapter = driftlaw.adapt(network, "surgical", part=part, stage=stage, tuned=tuned)
    expect_same(
        adapter,
        ReferenceSurgical(network, beginnings, norm_only=tuned == "norm", optimizer="adam", learning_rate=1e-3),
    )


def test_sgd_equals_the_hand_written_one(network):
    adapter = driftlaw.adapt(network, "surgical", part="from", stage=3, tuned="all", optimizer="sgd", learning_rate=0.1)
    expect_same(
        adapter,
        ReferenceSurgical(network, ["stages.2", "norm."], norm_only=False, optimizer="sgd", learning_rate=0.1),
    )


@pytest.mark.parametrize(("part", "stage", "beginnings"), [*PARTS, ("stage", 0, ["conv."])])
def test_only_the_part_moves_and_never_the_head(network, part, stage, beginnings):
    adapter = driftlaw.adapt(network, "surgical", part=part, stage=stage, tuned="all")
    adapter(batches(1)[0])
    for name, value in network.named_parameters():
        inside = any(name.startswith(beginning) for beginning in beginnings)
        assert torch.equal(adapter.model.get_parameter(name), value) != inside, name


def test_the_norm_layers_of_the_whole_network_are_tent(network):
    surgical, tent = driftlaw.adapt(network, "surgical", part="from", stage=0), driftlaw.adapt(network, "tent")
    for images in batches(3):
        assert torch.equal(surgical(images), tent(images))


def test_the_answer_is_from_before_the_update(network):
    adapter = driftlaw.adapt(network, "surgical")
    (images,) = batches(1)
    before = adapter.predict(images)
    assert torch.equal(adapter(images), before)
    assert not torch.equal(adapter.predict(images), before)


def test_an_unknown_stage_is_told_how_many_there_are(network):
    with pytest.raises(UsageError, match="this network has 4 stages"):
        driftlaw.adapt(network, "surgical", stage=4)


def test_a_part_without_norm_layers_is_refused_with_a_remedy(network):
    with pytest.raises(UsageError, match=r"in stem, and there are no norm layers there: .* tuned = «all»"):
        driftlaw.adapt(network, "surgical", part="stage", stage=0)


@pytest.mark.parametrize("settings", [{"statistics": "mixed"}, {"statistics": "window", "window": 8}])
def test_small_batches_are_as_tents(network, settings):
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
