"""Source, norm and tent against versions written by hand, in float64."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import driftlaw
from driftlaw.errors import UsageError
from tests.methods.images import batches
from tests.reference.baselines import ReferenceTent, norm_logits


def test_source_answers_as_the_model_does(network):
    adapter = driftlaw.adapt(network, "source")
    for images in batches(2):
        assert torch.equal(adapter(images), network(images).detach())


def test_norm_answers_with_the_statistics_of_the_batch(network):
    adapter = driftlaw.adapt(network, "norm")
    for images in batches(2):
        torch.testing.assert_close(adapter(images), norm_logits(network, images), rtol=0, atol=1e-10)


def test_the_order_of_batches_is_nothing_to_norm(network):
    forth, back = driftlaw.adapt(network, "norm"), driftlaw.adapt(network, "norm")
    images = batches(3)
    answers = [forth(batch) for batch in images]
    assert all(torch.equal(back(batch), answer) for batch, answer in zip(images[::-1], answers[::-1], strict=True))


@pytest.mark.parametrize(("optimizer", "learning_rate"), [("adam", 1e-3), ("sgd", 2.5e-4)])
def test_tent_equals_the_hand_written_one(network, optimizer, learning_rate):
    adapter = driftlaw.adapt(network, "tent", optimizer=optimizer, learning_rate=learning_rate)
    by_hand = ReferenceTent(network, optimizer=optimizer, learning_rate=learning_rate)
    for images in batches(3):
        torch.testing.assert_close(adapter(images), by_hand.step(images), rtol=0, atol=1e-10)
    for name, value in by_hand.model.named_parameters():
        torch.testing.assert_close(adapter.model.get_parameter(name).data, value.data, rtol=0, atol=1e-10)


@pytest.mark.parametrize("method", ["norm", "tent"])
def test_a_model_without_norm_layers_is_refused_with_a_reason(method):
    with pytest.raises(UsageError, match=r"norm layer|BatchNorm"):
        driftlaw.adapt(nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten()), method)


def test_an_unknown_method_names_its_neighbour(network):
    with pytest.raises(UsageError, match="Did you mean 'tent'"):
        driftlaw.adapt(network, "tentt")


def test_a_preset_sets_a_method_up_and_settings_go_over_it(network):
    adapter = driftlaw.adapt(network, "law", preset="cifar10-c", tau=0.6)
    assert adapter.config.consistency_weight == 0.1
    assert adapter.config.tau == 0.6
