"""Source, BN-1 and TENT against their reference implementations, in float64."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import driftlaw
from driftlaw.errors import UsageError
from tests.methods.images import TERMS, batches
from tests.reference.baselines import ReferenceTent, norm_logits
from tests.reference.tolerance import assert_same_step


def test_source_predicts_as_the_model(network):
    adapter = driftlaw.adapt(network, "source")
    for images in batches(2):
        assert torch.equal(adapter(images), network(images).detach())


def test_norm_uses_the_statistics_of_the_batch(network):
    adapter = driftlaw.adapt(network, "norm")
    for images in batches(2):
        torch.testing.assert_close(adapter(images), norm_logits(network, images), rtol=0, atol=1e-12)


def test_norm_does_not_depend_on_the_order_of_batches(network):
    forward, backward = driftlaw.adapt(network, "norm"), driftlaw.adapt(network, "norm")
    images = batches(3)
    logits = [forward(batch) for batch in images]
    assert all(torch.equal(backward(batch), each) for batch, each in zip(images[::-1], logits[::-1], strict=True))


@pytest.mark.parametrize(("optimizer", "learning_rate"), [("adam", 1e-3), ("sgd", 2.5e-4)])
def test_tent_equals_the_reference(network, optimizer, learning_rate):
    adapter = driftlaw.adapt(network, "tent", optimizer=optimizer, learning_rate=learning_rate)
    reference = ReferenceTent(network, optimizer=optimizer, learning_rate=learning_rate)
    for images in batches(3):
        torch.testing.assert_close(adapter(images), reference.step(images), rtol=0, atol=1e-12)
        assert_same_step(adapter.model, reference.model, reference.gradients, learning_rate, terms=TERMS)


@pytest.mark.parametrize("method", ["norm", "tent"])
def test_a_model_without_norm_layers_is_refused(method):
    with pytest.raises(UsageError, match=r"no norm layers|no BatchNorm layer"):
        driftlaw.adapt(nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten()), method)


def test_an_unknown_method_suggests_a_similar_name(network):
    with pytest.raises(UsageError, match="Did you mean 'tent'"):
        driftlaw.adapt(network, "tentt")


def test_settings_override_a_preset(network):
    adapter = driftlaw.adapt(network, "law", preset="cifar10-c", tau=0.6)
    assert adapter.config.consistency_weight == 0.1
    assert adapter.config.tau == 0.6
