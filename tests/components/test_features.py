"""Features of models with a linear head, and class prototypes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from driftlaw.components.features import class_means, logits_and_features, most_similar, nearest_prototype
from driftlaw.errors import UsageError
from driftlaw.models import build_model


def test_features_are_the_input_of_the_head():
    model, images = build_model("wrn_10_1", num_classes=4).eval(), torch.rand(3, 3, 16, 16)
    logits, features = logits_and_features(model, images)
    assert torch.equal(features, model.forward_features(images))
    assert torch.equal(logits, model(images))
    assert torch.equal(logits, model.head(features))


def test_the_hook_is_removed():
    model = build_model("wrn_10_1", num_classes=4)
    logits_and_features(model, torch.rand(2, 3, 16, 16))
    assert not model.head._forward_pre_hooks


def test_gradients_flow_through_logits_and_features():
    model = build_model("wrn_10_1", num_classes=4).eval()
    images = torch.rand(2, 3, 16, 16)
    logits, features = logits_and_features(model, images)
    for output, expected in ((logits, model(images)), (features, model.forward_features(images))):
        (gradient,) = torch.autograd.grad(output.sum(), model.conv.weight, retain_graph=True)
        torch.testing.assert_close(gradient, torch.autograd.grad(expected.sum(), model.conv.weight)[0])


def test_a_model_without_a_linear_layer_is_an_error():
    with pytest.raises(UsageError, match="no linear layer"):
        logits_and_features(nn.Conv2d(3, 2, 1), torch.rand(1, 3, 4, 4))


def test_a_head_that_gets_a_feature_map_is_an_error():
    with pytest.raises(UsageError, match=r"received inputs of shapes \[\(1, 3, 4, 4\)\]"):
        logits_and_features(nn.Linear(4, 2), torch.rand(1, 3, 4, 4))


@pytest.fixture
def model() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Identity(), nn.Linear(4, 2)).double()


def test_class_means_are_the_means_over_all_batches(model):
    images, labels = torch.rand(7, 1, 2, 2, dtype=torch.float64), torch.tensor([0, 1, 1, 0, 2, 2, 2])
    means = class_means(model, [(images[:3], labels[:3]), (images[3:], labels[3:])], 3)
    for label in range(3):
        torch.testing.assert_close(means[label], images[labels == label].flatten(1).mean(0))
    assert not means.requires_grad


def test_a_class_without_images_is_an_error_that_names_it(model):
    with pytest.raises(UsageError, match=r"1 classes had none \(for example class 1\)"):
        class_means(model, [(torch.rand(2, 1, 2, 2, dtype=torch.float64), torch.tensor([0, 2]))], 3)


def test_the_nearest_prototype_is_chosen_by_direction_and_the_most_similar_by_inner_product():
    prototypes = torch.tensor([[1.0, 0.0], [0.0, 5.0], [1.0, 1.0]])
    features = torch.tensor([[9.0, 1.0], [0.1, 0.1], [0.0, 0.2]])
    assert nearest_prototype(features, prototypes).tolist() == [0, 2, 1]
    assert most_similar(features, prototypes).tolist() == [2, 1, 1]
