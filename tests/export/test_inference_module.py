"""What of an adapter answers."""

from __future__ import annotations

import pytest
import torch

from driftlaw.base import Adapter, StepOutput
from driftlaw.errors import UsageError
from driftlaw.export import answering_network
from driftlaw.export.inference_module import Answering
from driftlaw.methods import make_adapter
from tests.export.made_up import images, network


@pytest.mark.parametrize("method", ["source", "norm", "tent", "cotta", "adacontrast"])
@torch.no_grad()
def test_one_network_answers_as_the_adapter_does_and_is_a_copy(method):
    adapter = make_adapter(method, network(), {"augmentations": 2} if method == "cotta" else {})
    adapter(images(6))
    own = answering_network(adapter, images(6))
    torch.testing.assert_close(own(images(6)), adapter.predict(images(6)))
    assert type(own) is type(network())
    expected = adapter.teacher if method == "cotta" else adapter.model
    assert own is not expected
    assert all(torch.equal(a, b) for a, b in zip(own.parameters(), expected.parameters(), strict=True))


class Mean(Adapter):
    """Answers with two networks."""

    name = "mean"  # of no method: what is registered would be tested as one

    def setup(self, train_data):
        self.other = network(seed=8)
        self.unused = network(seed=9)

    def update(self, images, plan):
        return StepOutput(self.forward_logits(images))

    def forward_logits(self, images):
        return (self.model(images) + self.other(images)) / 2


class Shifted(Adapter):
    """Answers with a number that is no part of a network."""

    name = "shifted"  # of no method: what is registered would be tested as one

    def setup(self, train_data):
        self.register_buffer("shift", torch.ones(()))

    def update(self, images, plan):
        return StepOutput(self.forward_logits(images))

    def forward_logits(self, images):
        return self.model(images) + self.shift


@torch.no_grad()
def test_several_networks_answer_by_the_methods_rule_and_the_idle_ones_stay_behind():
    adapter = Mean(network())
    own = answering_network(adapter, images(6))
    assert isinstance(own, Answering)
    assert [name for name, _ in own.named_children()] == ["model", "other"]
    torch.testing.assert_close(own(images(6)), adapter.predict(images(6)))


def test_an_answer_made_of_more_than_networks_is_refused():
    with pytest.raises(UsageError, match="more than its networks"):
        answering_network(Shifted(network()), images(6))
