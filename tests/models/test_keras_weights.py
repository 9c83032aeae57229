"""Keras' first ResNet-50 made ours."""

import pytest
import torch

from driftlaw.errors import DataError
from driftlaw.models import weights_sha256
from driftlaw.models.keras_weights import convert, our_name, read_archive
from tests.models import keras_style

SMALL = {"conv1/kernel": torch.arange(24.0).view(2, 2, 3, 2), "conv1/bias": torch.tensor([1.0, 2.0])}


@pytest.fixture(scope="module")
def model():
    return keras_style.network()


def test_converted_weights_give_the_same_answers(model):
    again = convert(keras_style.keras_tensors(model))
    assert again.info["name"] == "resnet14_keras"
    assert again.info["num_classes"] == 3
    assert again.info["normalise"]["order"] == "bgr"
    assert weights_sha256(again) == weights_sha256(model)
    images = torch.rand(2, 3, 64, 64)
    assert torch.equal(again(images), model(images))


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("conv1/kernel", "conv1.weight"),
        ("bn_conv1/moving_variance", "bn1.running_var"),
        ("res2a_branch1/bias", "layer1.0.downsample.0.bias"),
        ("bn2a_branch1/gamma", "layer1.0.downsample.1.weight"),
        ("res4f_branch2b/kernel", "layer3.5.conv2.weight"),
        ("bn5c_branch2c/beta", "layer4.2.bn3.bias"),
        ("fc1000/kernel", "fc.weight"),
    ],
)
def test_names_are_ours(theirs, ours):
    assert our_name(theirs) == ours


@pytest.mark.parametrize("name", ["res2a_branch3/kernel", "conv2/kernel", "conv1/alpha", "fc1000"])
def test_a_name_of_another_network_is_told(name):
    with pytest.raises(DataError, match=f"«{name}» is no tensor of Keras"):
        our_name(name)


def test_weights_of_another_shape_are_told(model):
    tensors = keras_style.keras_tensors(model)
    tensors["res3a_branch2b/kernel"] = torch.zeros(3, 3, 5, 128)
    del tensors["bn4a_branch2a/beta"]
    with pytest.raises(DataError, match=r"do not fit resnet14_keras: layer2\.0\.conv2\.weight, layer3\.0\.bn1\.bias"):
        convert(tensors)
    with pytest.raises(DataError, match="no ResNet of Keras' first form"):
        convert(SMALL)


@pytest.mark.parametrize("shards", [1, 3, 7])
def test_tensors_are_read_across_shards(tmp_path, shards):
    path = keras_style.write_package(SMALL, tmp_path / "p.tgz", shards=shards)
    found = read_archive(path, "ResNet50")
    assert found.keys() == SMALL.keys()
    assert all(torch.equal(found[name], value) for name, value in SMALL.items())


def test_other_content_than_was_pinned_is_refused(tmp_path):
    path = keras_style.write_package(SMALL, tmp_path / "p.tgz")
    with pytest.raises(DataError, match=r"weights in p\.tgz have sha256 [0-9a-f]{64}; expected 00"):
        read_archive(path, "ResNet50", content_sha256="00")


def test_a_damaged_package_is_told(tmp_path):
    path = keras_style.write_package(SMALL, tmp_path / "p.tgz")
    with pytest.raises(DataError, match=r"p\.tgz lacks VGG/model\.json"):
        read_archive(path, "VGG")
    path.write_bytes(path.read_bytes()[:700])
    with pytest.raises(DataError, match=r"p\.tgz"):
        read_archive(path, "ResNet50")
    path.write_text("<html>Too many requests</html>")
    with pytest.raises(DataError, match=r"p\.tgz is damaged"):
        read_archive(path, "ResNet50")


@pytest.mark.parametrize("odd", [{"dtype": "uint8"}, {"quantization": {"scale": 0.1, "min": 0}}])
def test_rounded_numbers_are_refused(tmp_path, odd):
    with pytest.raises(DataError, match="other than plain float32"):
        read_archive(keras_style.write_package(SMALL, tmp_path / "p.tgz", **odd), "ResNet50")


def test_missing_bytes_are_told(tmp_path):
    longer = SMALL | {"fc1000/bias": torch.zeros(3)}
    path = keras_style.write_package(longer, tmp_path / "p.tgz", shards=1)
    content = path.read_bytes()
    assert content.count(b'"shape": [3]') == 1
    path.write_bytes(content.replace(b'"shape": [3]', b'"shape": [4]'))
    with pytest.raises(DataError, match=r"holds 116 bytes of weights; its model\.json speaks of 120"):
        read_archive(path, "ResNet50")
