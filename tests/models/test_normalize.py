"""Input normalisation."""

import json

import pytest
import torch

from driftlaw.errors import UsageError
from driftlaw.models.normalize import NORMALIZATIONS, Normalize, make_normalize, same_normalization


def test_channels_are_normalized_separately():
    layer = Normalize([0.5, 0.25, 0.0], [0.5, 0.25, 1.0])
    images = torch.tensor([1.0, 0.5, 0.75]).view(1, 3, 1, 1).expand(2, 3, 4, 4)
    assert layer(images)[1, :, 0, 0].tolist() == [1.0, 1.0, 0.75]


def test_default_is_the_identity():
    images = torch.rand(2, 3, 4, 4)
    assert torch.equal(Normalize()(images), images)


def test_numbers_are_not_in_the_state_dict():
    assert Normalize().state_dict() == {}
    assert list(Normalize().parameters()) == []


def test_as_lists_is_short_and_exact():
    assert Normalize([0.4914, 0.4822, 0.4465], [0.2, 0.1, 1.0]).as_lists() == {
        "mean": [0.4914, 0.4822, 0.4465],
        "std": [0.2, 0.1, 1.0],
    }
    layer = Normalize([0.49139968, 0.48215841, 1 / 3], [0.24703223, 0.24348513, 1 / 7])
    again = Normalize(**json.loads(json.dumps(layer.as_lists())))
    assert torch.equal(again.mean, layer.mean)
    assert torch.equal(again.std, layer.std)


def test_layer_follows_the_dtype_of_its_model():
    assert Normalize().double()(torch.rand(1, 3, 2, 2, dtype=torch.float64)).dtype == torch.float64


def test_caffe_uses_bgr_bytes():
    red, green, blue = 1.0, 0.5, 0.25
    images = torch.tensor([red, green, blue]).view(1, 3, 1, 1)
    found = make_normalize("caffe")(images).flatten().tolist()
    expected = [255 * blue - 103.939, 255 * green - 116.779, 255 * red - 123.68]
    assert found == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("name", list(NORMALIZATIONS))
def test_names_and_numbers_are_equivalent(name):
    layer = make_normalize(name)
    again = make_normalize(json.loads(json.dumps(layer.as_lists())))
    assert same_normalization(layer, again)
    assert layer.as_lists() == again.as_lists() == NORMALIZATIONS[name]
    assert layer.describe().startswith(f"'{name}' (mean=[")
    assert repr(layer).startswith("Normalize(mean=[")


def test_named_normalizations_differ():
    layers = [make_normalize(name) for name in NORMALIZATIONS]
    assert sum(same_normalization(a, b) for a in layers for b in layers) == len(layers)


def test_none_is_the_identity():
    assert same_normalization(make_normalize(None), make_normalize("none"))


@pytest.mark.parametrize(
    ("normalize", "message"),
    [
        ("imagnet", "Did you mean 'imagenet'"),
        ({"mean": [0.5, 0.5], "std": [1.0] * 3}, r"mean is \[0\.5, 0\.5\], expected three numbers"),
        ({"mean": [0.5] * 3, "std": [0.0, 1.0, 1.0]}, "expected numbers above 0"),
        ({"mean": 0.5}, "mean is 0.5, expected three"),
        ({"mean": 10**400}, "mean is 1000"),
        ({"sigma": [1.0] * 3}, "unknown key 'sigma'"),
        ({"mean": [0.5] * 3, "order": "gbr"}, "Unknown channel order 'gbr'"),
    ],
)
def test_invalid_normalization_raises(normalize, message):
    with pytest.raises(UsageError, match=message):
        make_normalize(normalize)


def test_comparison_ignores_rounding():
    exact = Normalize([0.49139968, 0.48215841, 0.44653091], [0.24703223, 0.24348513, 0.26158784])
    assert same_normalization(exact, Normalize([0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]))
    assert not same_normalization(exact, make_normalize("cifar10"))
    assert not same_normalization(Normalize(), Normalize(order="bgr"))
    assert not same_normalization(Normalize(), Normalize(scale=255))


def test_normalization_from_metadata_may_contain_integers():
    assert Normalize([True], [2]).mean.dtype == torch.get_default_dtype()
