"""Snapshots find every changed bit and everything that grows."""

import numpy as np
import pytest
import torch
from torch import nn

from driftlaw.testing.expect import CheckFailed, expect_none
from driftlaw.testing.fixtures import make_images
from driftlaw.testing.snapshots import (
    attributes_holding_graphs,
    attributes_of,
    differences,
    object_count,
    same,
    state_of,
)
from tests.testing.broken_methods import Good


@pytest.fixture
def adapter():
    return Good(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 14 * 14, 4)))


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (torch.tensor(0.0), torch.tensor(-0.0), False),
        (torch.tensor([torch.nan]), torch.tensor([torch.nan]), True),
        (torch.tensor(1.0), torch.tensor(1.0, dtype=torch.float64), False),
        (torch.ones(2), torch.ones(1, 2), False),
        (torch.ones(2, 3).t(), torch.ones(3, 2), True),
        (np.zeros(2), np.zeros(2), True),
        (np.zeros(2), np.zeros(3), False),
        (1, 1.0, False),
        (True, 1, False),
        (None, None, True),
        (torch.zeros(()), None, False),
    ],
)
def test_same_compares_bits(one, other, equal):
    assert same(one, other) is equal


def test_differences_lists_paths():
    one = {"a": {"b": torch.zeros(2), "c": [1, 2]}, "d": 1}
    other = {"a": {"b": torch.tensor([0.0, 1e-30]), "c": [1, 3]}, "e": 1}
    assert differences(one, other) == ["a.b", "a.c.1", "d", "e"]
    assert differences(one, one) == []


def test_a_failed_check_names_the_first_few():
    expect_none([], "never")
    with pytest.raises(CheckFailed, match=r"a, b, c, d and 1 more changed"):
        expect_none(list("abcde"), "{} changed")


def test_state_of_is_a_copy_and_changes_with_steps(adapter):
    before = state_of(adapter)
    assert differences(before, state_of(adapter)) == []
    adapter(make_images())
    assert "saved.model.1.weight" in differences(before, state_of(adapter))
    adapter.reset()
    assert differences(before, state_of(adapter)) == []


def test_state_of_contains_modes_and_requires_grad(adapter):
    before = state_of(adapter)
    adapter.model[1].eval()
    adapter.model[0].weight.requires_grad_(True)
    assert differences(before, state_of(adapter)) == ["modes.model.1", "requires_grad.model.0.weight"]


def test_attributes_of_contains_plain_values_only(adapter):
    adapter.count, adapter.thing = [1, 2], object()
    adapter.model[0].scale = 2.0
    attributes = attributes_of(adapter)
    assert attributes["count"] == [1, 2]
    assert attributes["model.0.scale"] == 2.0
    assert "thing" not in attributes
    assert "_initial_state" not in attributes


def test_state_of_a_model_contains_buffers():
    model = nn.BatchNorm2d(3)
    before = state_of(model)
    model(torch.rand(2, 3, 4, 4))
    after = state_of(model)
    assert differences(before["saved"], after["saved"]) == ["running_mean", "running_var", "num_batches_tracked"]


def test_object_count_follows_nested_objects(adapter):
    class Memory:
        def __init__(self):
            self.kept = {"features": [torch.zeros(3)]}

    adapter.memory = Memory()
    before = object_count(adapter)["memory"]
    adapter.memory.kept["features"].append(torch.zeros(5))
    assert object_count(adapter)["memory"] == before + 5 + 1
    adapter.memory.kept["features"] += [adapter.memory.kept["features"][0]] * 4
    assert object_count(adapter)["memory"] == before + 5 + 1 + 4


def test_attributes_holding_graphs_finds_undetached_tensors(adapter):
    assert attributes_holding_graphs(adapter) == []
    adapter.losses = [adapter.model(make_images()).sum()]
    assert attributes_holding_graphs(adapter) == ["losses"]
