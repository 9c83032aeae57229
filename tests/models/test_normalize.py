"""Input normalisation as a layer."""

import json

import pytest
import torch

from driftlaw.errors import UsageError
from driftlaw.models.normalize import NORMALISATIONS, Normalize, make_normalise, same_normalisation, told


def test_each_channel_has_its_own_numbers():
    layer = Normalize([0.5, 0.25, 0.0], [0.5, 0.25, 1.0])
    images = torch.tensor([1.0, 0.5, 0.75]).view(1, 3, 1, 1).expand(2, 3, 4, 4)
    assert layer(images)[1, :, 0, 0].tolist() == [1.0, 1.0, 0.75]


def test_nothing_is_changed_by_default():
    images = torch.rand(2, 3, 4, 4)
    assert torch.equal(Normalize()(images), images)


def test_the_numbers_are_no_weights():
    assert Normalize().state_dict() == {}
    assert list(Normalize().parameters()) == []


def test_the_numbers_as_lists_are_short_and_lose_no_bit():
    assert Normalize([0.4914, 0.4822, 0.4465], [0.2, 0.1, 1.0]).as_lists() == {
        "mean": [0.4914, 0.4822, 0.4465],
        "std": [0.2, 0.1, 1.0],
    }
    layer = Normalize([0.49139968, 0.48215841, 1 / 3], [0.24703223, 0.24348513, 1 / 7])
    again = Normalize(**json.loads(json.dumps(layer.as_lists())))
    assert torch.equal(again.mean, layer.mean)
    assert torch.equal(again.std, layer.std)


def test_it_follows_its_network_to_another_dtype():
    assert Normalize().double()(torch.rand(1, 3, 2, 2, dtype=torch.float64)).dtype == torch.float64


def test_caffes_networks_get_bytes_in_their_own_order():
    red, green, blue = 1.0, 0.5, 0.25
    images = torch.tensor([red, green, blue]).view(1, 3, 1, 1)
    found = make_normalise("caffe")(images).flatten().tolist()
    expected = [255 * blue - 103.939, 255 * green - 116.779, 255 * red - 123.68]
    assert found == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("name", list(NORMALISATIONS))
def test_a_name_and_its_numbers_are_one(name):
    layer = make_normalise(name)
    again = make_normalise(json.loads(json.dumps(layer.as_lists())))
    assert same_normalisation(layer, again)
    assert layer.as_lists() == again.as_lists() == NORMALISATIONS[name]
    assert told(layer).startswith(f"«{name}»")
    assert repr(layer).startswith("Normalize(mean=[")


def test_no_two_names_mean_the_same():
    layers = [make_normalise(name) for name in NORMALISATIONS]
    assert sum(same_normalisation(a, b) for a in layers for b in layers) == len(layers)


def test_nothing_asked_for_is_nothing_done():
    assert same_normalisation(make_normalise(None), make_normalise("none"))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("imagnet", "Did you mean 'imagenet'"),
        ({"mean": [0.5, 0.5], "std": [1.0] * 3}, r"mean is \[0\.5, 0\.5\]: expected three numbers"),
        ({"mean": [0.5] * 3, "std": [0.0, 1.0, 1.0]}, "expected numbers above 0"),
        ({"mean": 0.5}, "mean is 0.5: expected three"),
        ({"sigma": [1.0] * 3}, "unknown key «sigma»"),
        ({"mean": [0.5] * 3, "order": "gbr"}, "Unknown channel order 'gbr'"),
    ],
)
def test_what_cannot_be_used_is_told(asked, said):
    with pytest.raises(UsageError, match=said):
        make_normalise(asked)


def test_numbers_printed_with_fewer_digits_are_the_same_and_others_are_not():
    exact = Normalize([0.49139968, 0.48215841, 0.44653091], [0.24703223, 0.24348513, 0.26158784])
    assert same_normalisation(exact, Normalize([0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]))
    assert not same_normalisation(exact, make_normalise("cifar10"))
    assert not same_normalisation(Normalize(), Normalize(order="bgr"))
    assert not same_normalisation(Normalize(), Normalize(scale=255))
