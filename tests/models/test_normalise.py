"""Input normalisation as a layer."""

import json

import torch

from driftlaw.models.normalise import Normalise


def test_each_channel_has_its_own_numbers():
    layer = Normalise([0.5, 0.25, 0.0], [0.5, 0.25, 1.0])
    images = torch.tensor([1.0, 0.5, 0.75]).view(1, 3, 1, 1).expand(2, 3, 4, 4)
    assert layer(images)[1, :, 0, 0].tolist() == [1.0, 1.0, 0.75]


def test_nothing_is_changed_by_default():
    images = torch.rand(2, 3, 4, 4)
    assert torch.equal(Normalise()(images), images)


def test_the_numbers_are_no_weights():
    assert Normalise().state_dict() == {}
    assert list(Normalise().parameters()) == []


def test_the_numbers_as_lists_are_short_and_lose_no_bit():
    assert Normalise([0.4914, 0.4822, 0.4465], [0.2, 0.1, 1.0]).as_lists() == {
        "mean": [0.4914, 0.4822, 0.4465],
        "std": [0.2, 0.1, 1.0],
    }
    layer = Normalise([0.49139968, 0.48215841, 1 / 3], [0.24703223, 0.24348513, 1 / 7])
    again = Normalise(**json.loads(json.dumps(layer.as_lists())))
    assert torch.equal(again.mean, layer.mean)
    assert torch.equal(again.std, layer.std)


def test_it_follows_its_network_to_another_dtype():
    assert Normalise().double()(torch.rand(1, 3, 2, 2, dtype=torch.float64)).dtype == torch.float64
