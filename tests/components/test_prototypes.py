"""Class means, and which of them is nearest."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from driftlaw.components.features import class_means, nearest_prototype
from driftlaw.errors import UsageError


@pytest.fixture
def model() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Identity(), nn.Linear(4, 2)).double()


def test_they_are_the_means_over_all_batches(model):
    images, labels = torch.rand(7, 1, 2, 2, dtype=torch.float64), torch.tensor([0, 1, 1, 0, 2, 2, 2])
    means = class_means(model, [(images[:3], labels[:3]), (images[3:], labels[3:])], 3)
    for label in range(3):
        torch.testing.assert_close(means[label], images[labels == label].flatten(1).mean(0))
    assert not means.requires_grad


def test_a_class_without_an_image_is_named(model):
    with pytest.raises(UsageError, match="class 1"):
        class_means(model, [(torch.rand(2, 1, 2, 2, dtype=torch.float64), torch.tensor([0, 2]))], 3)


def test_the_nearest_is_that_of_the_same_direction():
    prototypes = torch.tensor([[1.0, 0.0], [0.0, 5.0], [1.0, 1.0]])
    features = torch.tensor([[9.0, 1.0], [0.1, 0.1], [0.0, 0.2]])
    assert nearest_prototype(features, prototypes).tolist() == [0, 2, 1]
