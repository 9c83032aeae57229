"""Registry of models."""

import pytest
import torch

from driftlaw.errors import UsageError
from driftlaw.models import PUBLIC_WEIGHTS, build_model, list_models
from driftlaw.models.resnet import ResNet
from driftlaw.models.resnext import ResNeXt
from driftlaw.models.wide_resnet import WideResNet


def test_every_listed_model_can_be_built():
    names = [info.name for info in list_models()]
    assert {"wrn_16_1", "wrn_28_10", "wrn_40_2", "resnext_29_4x32", "resnet50_cifar"} <= set(names)
    assert {"resnet50", "resnet50_keras", "resnext50_32x4d", "wide_resnet50_2", "efficientnet_lite0"} <= set(names)
    for info in list_models():
        with torch.device("meta"):
            model = build_model(info.name, num_classes=5)
        assert model.info["name"] == info.name
        assert model.info["num_classes"] == 5
        assert list(model.parameters())[-1].shape == (5,)
        assert model.normalize is next(iter(model.children()))
        assert callable(model.forward_features)
        assert callable(model.forward_head)
        assert info.title
        assert info.paper
        assert info.input_size in ((48, 480) if info.name.startswith("fpn_") else (32, 224))


@pytest.mark.parametrize(
    ("name", "kind", "features"),
    [
        ("wrn_10_3", WideResNet, 192),
        ("resnext_11_2x8", ResNeXt, 1024),
        ("resnet14_cifar", ResNet, 2048),
        ("resnet14", ResNet, 2048),
        ("resnet14_keras", ResNet, 2048),
        ("resnext14_2x4d", ResNet, 2048),
        ("wide_resnet14_1", ResNet, 2048),
    ],
)
def test_small_models_of_the_same_families_can_be_built(name, kind, features):
    model = build_model(name, num_classes=4, normalize="half").eval()
    assert isinstance(model, kind)
    assert model.forward_features(torch.rand(1, 3, 32, 32)).shape == (1, features)
    assert model.info["normalise"] == {"mean": [0.5] * 3, "std": [0.5] * 3}


def test_public_weights_are_described():
    for name, weights in PUBLIC_WEIGHTS.items():
        assert weights.name == name
        assert len(weights.weights_sha256) == 64
        assert weights.tool.startswith("python -m tools.")


def test_info_contains_the_normalization():
    plain = build_model("wrn_10_1", num_classes=4)
    assert plain.info["normalise"] == {"mean": [0.0, 0.0, 0.0], "std": [1.0, 1.0, 1.0]}
    normed = build_model("wrn_10_1", num_classes=4, normalize={"mean": [0.5] * 3, "std": [0.25] * 3})
    assert normed.info["normalise"] == {"mean": [0.5] * 3, "std": [0.25] * 3}
    assert normed.normalize.std.flatten().tolist() == [0.25] * 3


@pytest.mark.parametrize("name", ["wrn_28_1O", "WRN-28-10", "wrn2810", "resnet", ""])
def test_unknown_model_raises(name):
    with pytest.raises(UsageError, match=f"Unknown model '{name}'.*wrn_28_10"):
        build_model(name, num_classes=10)


def test_typo_suggests_the_nearest_model():
    with pytest.raises(UsageError, match="Did you mean 'wrn_40_2'"):
        build_model("wnr_40_2", num_classes=10)


@pytest.mark.parametrize(
    ("name", "num_classes"),
    [
        ("wrn_6000004_1", 10),
        ("wrn_16_100000", 10),
        ("wrn_2002_1", 10),
        ("resnext_29_4096x4096", 10),
        ("resnext_9000002_1x1", 10),
        ("resnext101_100000x64d", 10),
        ("wide_resnet50_1000", 10),
        ("resnet50", 10**9),
        ("wrn_16_1", 1_000_001),
    ],
)
def test_models_beyond_the_limits_raise_before_memory_is_allocated(name, num_classes):
    with pytest.raises(UsageError, match=rf"'{name}' with {num_classes:,} classes is too large\. At most 2,000 layers"):
        build_model(name, num_classes=num_classes)


@pytest.mark.parametrize("name", ["wrn_28_10", "resnext_29_4x32", "resnext50_32x4d", "wide_resnet50_2"])
def test_the_estimated_size_is_close_to_the_size_of_the_model(name, monkeypatch):
    model = build_model(name, num_classes=10)
    size = sum(value.numel() for value in model.parameters())
    monkeypatch.setattr("driftlaw.models.registry.MAX_PARAMETERS", int(0.8 * size))
    with pytest.raises(UsageError, match="too large"):
        build_model(name, num_classes=10)
    monkeypatch.setattr("driftlaw.models.registry.MAX_PARAMETERS", int(1.3 * size))
    build_model(name, num_classes=10)


def test_the_largest_published_model_is_within_the_limits(monkeypatch):
    monkeypatch.setattr("driftlaw.models.registry.ResNet", lambda *args, **kwargs: torch.nn.Identity())
    assert build_model("resnext101_32x48d", num_classes=1000).info["num_classes"] == 1000


def test_invalid_depth_raises():
    with pytest.raises(UsageError, match="depth 27"):
        build_model("wrn_27_10", num_classes=10)
