"""Snapshots see every bit, and what grows."""

import numpy as np
import pytest
import torch
from torch import nn

from driftlaw.testing.fixtures import make_images
from driftlaw.testing.snapshots import (
    attributes_of,
    differences,
    kept_graphs,
    moved,
    named,
    network_of,
    same,
    saved_tensors,
    state_of,
    weight,
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
def test_equal_means_equal_to_the_bit(one, other, equal):
    assert same(one, other) is equal


def test_differences_are_named_by_their_path():
    one = {"a": {"b": torch.zeros(2), "c": [1, 2]}, "d": 1}
    other = {"a": {"b": torch.tensor([0.0, 1e-30]), "c": [1, 3]}, "e": 1}
    assert differences(one, other) == ["a.b", "a.c.1", "d", "e"]
    assert differences(one, one) == []
    assert named(["a", "b", "c"], most=2) == "a, b and 1 more"


def test_a_state_is_a_copy_and_sees_steps(adapter):
    before = state_of(adapter)
    assert differences(before, state_of(adapter)) == []
    adapter(make_images())
    assert "saved.model.1.weight" in differences(before, state_of(adapter))
    adapter.reset()
    assert differences(before, state_of(adapter)) == []


def test_modes_and_requires_grad_are_part_of_the_state(adapter):
    before = state_of(adapter)
    adapter.model[1].eval()
    adapter.model[0].weight.requires_grad_(True)
    assert differences(before, state_of(adapter)) == ["modes.model.1", "learning.model.0.weight"]


def test_plain_attributes_are_seen_and_objects_are_not(adapter):
    adapter.count, adapter.thing = [1, 2], object()
    adapter.model[0].scale = 2.0
    found = attributes_of(adapter)
    assert found["count"] == [1, 2]
    assert found["model.0.scale"] == 2.0
    assert "thing" not in found
    assert "_birth" not in found


def test_a_networks_gradients_and_buffers_are_seen():
    model = nn.BatchNorm2d(3)
    before = network_of(model)
    model.weight.grad = torch.ones(3)
    model(torch.rand(2, 3, 4, 4))
    after = network_of(model)
    assert moved(before, after) == ["running_mean", "running_var", "num_batches_tracked"]
    assert "gradients.weight" in differences(before, after)


def test_what_hangs_on_an_attribute_is_weighed_however_deep(adapter):
    class Memory:
        def __init__(self):
            self.kept = {"features": [torch.zeros(3)]}

    adapter.memory = Memory()
    before = weight(adapter)["memory"]
    adapter.memory.kept["features"].append(torch.zeros(5))
    assert weight(adapter)["memory"] == before + 5 + 1
    adapter.memory.kept["features"] += [adapter.memory.kept["features"][0]] * 4
    assert weight(adapter)["memory"] == before + 5 + 1 + 4


def test_saved_tensors_include_an_optimizers(adapter):
    before = saved_tensors(adapter)
    adapter(make_images())
    count, size = saved_tensors(adapter)
    assert count == before[0] + 2
    assert size == before[1] + 2 * 4 * 4


def test_a_kept_graph_is_seen(adapter):
    assert kept_graphs(adapter) == []
    adapter.losses = [adapter.model(make_images()).sum()]
    assert kept_graphs(adapter) == ["losses"]
