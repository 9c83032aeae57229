"""Features of any network."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from driftlaw.components.features import head_logits, logits_and_features
from driftlaw.errors import UsageError
from driftlaw.models import build_model


def test_they_are_what_forward_features_gives_and_the_head_makes_logits_of_them():
    model, images = build_model("wrn_10_1", num_classes=4).eval(), torch.rand(3, 3, 16, 16)
    logits, features = logits_and_features(model, images)
    assert torch.equal(features, model.forward_features(images))
    assert torch.equal(logits, model(images))
    torch.testing.assert_close(head_logits(model, features), logits)


def test_no_hook_is_left_behind():
    model = build_model("wrn_10_1", num_classes=4)
    logits_and_features(model, torch.rand(2, 3, 16, 16))
    assert not model.head._forward_pre_hooks


def test_gradients_flow_through_both():
    model = build_model("wrn_10_1", num_classes=4)
    logits, features = logits_and_features(model, torch.rand(2, 3, 16, 16))
    (logits.sum() + features.sum()).backward()
    assert model.conv.weight.grad.abs().sum() > 0


def test_a_model_without_a_linear_layer_is_refused():
    with pytest.raises(UsageError, match="no linear layer"):
        logits_and_features(nn.Conv2d(3, 2, 1), torch.rand(1, 3, 4, 4))
