"""Rescaling of BatchNorm layers: the same logits with smaller parameters."""

import copy
import dataclasses

import pytest
import torch
from torch import nn

from driftlaw.components.batch_norm import use_batch_stats
from driftlaw.models import PUBLIC_WEIGHTS, build_model, load_model, rescale_batch_norm, save_model, verify_weights
from driftlaw.models import weights_sha256 as sha256

IMAGES = torch.rand(6, 3, 64, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
NAME = "resnet50-imagenet"


@pytest.fixture(scope="module")
def model():
    """A small network of Keras' form with random weights and statistics."""
    generator = torch.Generator().manual_seed(1)
    network = build_model("resnet14_keras", num_classes=5, normalize="caffe").eval()
    for key, value in network.state_dict().items():
        if value.ndim == 1 and value.is_floating_point():
            value.uniform_(0.5, 1.5, generator=generator)
        elif "bias" in key:
            value.normal_(generator=generator)
    return network


@pytest.mark.parametrize("batch_statistics", [False, True])
def test_logits_stay_the_same(model, batch_statistics):
    before, after = copy.deepcopy(model).double(), copy.deepcopy(model).double()
    rescale_batch_norm(after, 0.2)
    if batch_statistics:
        use_batch_stats(before, 0.0)
        use_batch_stats(after, 0.0)
    with torch.no_grad():
        expected, found = before(IMAGES), after(IMAGES)
    # About 20 layers, each of which rounds to 1.1e-16 of its values.
    assert (found - expected).abs().max() <= 1e-12 * expected.abs().max()


def test_every_batch_norm_layer_and_no_convolution_kernel_is_scaled(model):
    scaled = copy.deepcopy(model)
    rescale_batch_norm(scaled, 0.2)
    for (name, layer), other in zip(scaled.named_modules(), model.modules(), strict=True):
        if isinstance(layer, nn.BatchNorm2d):
            torch.testing.assert_close(layer.weight, other.weight * 0.2)
            torch.testing.assert_close(layer.bias, other.bias * 0.2)
            assert layer.eps == pytest.approx(other.eps * (1 if name == "bn1" else 0.04))
        elif isinstance(layer, nn.Conv2d):
            assert torch.equal(layer.weight, other.weight)
    assert scaled.info["batch_norm_scale"] == 0.2
    rescale_batch_norm(scaled, 5.0)
    assert scaled.info["batch_norm_scale"] == 1.0


def test_a_rescaled_model_is_saved_and_loaded(model, tmp_path):
    scaled = copy.deepcopy(model)
    rescale_batch_norm(scaled, 0.2)
    save_model(scaled, tmp_path / "scaled.safetensors")
    again = load_model(tmp_path / "scaled.safetensors")
    assert again.info["batch_norm_scale"] == 0.2
    assert torch.equal(again(IMAGES.float()), scaled(IMAGES.float()))


def test_public_weights_are_rescaled_by_name_and_not_by_path(model, tmp_path, monkeypatch):
    monkeypatch.setitem(PUBLIC_WEIGHTS, NAME, dataclasses.replace(PUBLIC_WEIGHTS[NAME], weights_sha256=sha256(model)))
    path = tmp_path / "weights" / f"{NAME}.safetensors"
    save_model(model, path)
    scaled = copy.deepcopy(model)
    rescale_batch_norm(scaled, 0.2)
    assert sha256(load_model(NAME, folder=tmp_path)) == sha256(scaled)
    assert sha256(load_model(path)) == sha256(model)
    assert verify_weights(NAME, tmp_path) == []
    save_model(scaled, path)  # not rescaled again
    assert sha256(load_model(NAME, folder=tmp_path)) == sha256(scaled)
