"""State dicts of other projects."""

import re

import pytest
import torch

from driftlaw.errors import DataError
from driftlaw.models import build_model
from driftlaw.models.checkpoint_formats import (
    default_normalization,
    infer_architecture,
    pop_normalization,
    published_normalization,
    to_driftlaw_names,
)


def tensors_of(name):
    return build_model(name, num_classes=4).state_dict()


@pytest.mark.parametrize(
    "name",
    [
        "wrn_10_1",
        "wrn_16_3",
        "resnext_11_2x8",
        "resnext_20_4x4",
        "resnet14",
        "resnet14_keras",
        "resnet14_cifar",
        "resnext14_4x8d",
        "wide_resnet14_2",
        "resnet26_cifar",
        "efficientnet_lite0",
    ],
)
def test_architecture_is_inferred_from_names_and_shapes(name):
    tensors = tensors_of(name)
    renamed, family = to_driftlaw_names(tensors)
    assert renamed.keys() == tensors.keys()
    assert infer_architecture(renamed, family, "x") == name
    assert len(renamed[family.head]) == 4


@pytest.mark.parametrize("prefix", ["module.", "model.", "module.model.", "model.module.", "encoder.module."])
@pytest.mark.parametrize("name", ["resnext_11_2x8", "resnet14_cifar"])
def test_prefixes_are_removed(name, prefix):
    tensors = tensors_of(name)
    renamed, family = to_driftlaw_names({prefix + key: value for key, value in tensors.items()})
    assert renamed.keys() == tensors.keys()
    assert family is not None


def test_unknown_names_raise():
    tensors = {"features.0.weight": torch.zeros(3), "features.0.bias": torch.zeros(3)}
    renamed, family = to_driftlaw_names(tensors)
    assert renamed.keys() == tensors.keys()
    with pytest.raises(DataError, match=r"vgg\.pt is not of a known architecture .*features\.0\.weight.*Wide ResNet"):
        infer_architecture(renamed, family, "vgg.pt")


def without(tensors, name):
    return {key: value for key, value in tensors.items() if key != name}


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors: without(tensors, "conv1.weight"),
        lambda tensors: tensors | {"layer1.0.conv2.weight": torch.zeros(3)},
        lambda tensors: tensors | {"layer1.0.conv2.weight": torch.zeros(0, 0, 3, 3)},
        lambda tensors: tensors | {"layer1.7.conv2.weight": torch.zeros(3)},
    ],
)
def test_unknown_shape_raises(change):
    renamed, family = to_driftlaw_names(change(tensors_of("resnet14")))
    with pytest.raises(DataError, match=r"odd\.pt is a bottleneck ResNet of an unknown shape"):
        infer_architecture(renamed, family, "odd.pt")


def test_mean_and_std_are_removed_from_the_weights():
    numbers = {"normalize.mean": torch.full((1, 3, 1, 1), 0.5), "normalize.std": torch.full((1, 3, 1, 1), 0.25)}
    renamed, _ = to_driftlaw_names(tensors_of("resnet14") | numbers)
    stated = pop_normalization(renamed)
    assert stated.normalize == {"mean": [0.5] * 3, "std": [0.25] * 3}
    assert renamed.keys() == tensors_of("resnet14").keys()
    assert pop_normalization(renamed) is None


@pytest.mark.parametrize(
    ("stem", "architecture", "fields", "known"),
    [
        ("Hendrycks2020AugMix_WRN", "wrn_40_2", (), "half"),
        ("Hendrycks2020AugMix_ResNeXt", "resnext_29_4x32", (), "half"),
        ("model_best", "wrn_40_2", ("state_dict", "best_acc", "dataset", "model", "epoch", "optimizer"), "half"),
        ("Standard", "wrn_28_10", (), "none"),
        ("Standard", "wrn_16_2", (), None),
        ("resnet50-0676ba61", "resnet50", (), "imagenet"),
        ("wide_resnet50_2-95faca4d", "wide_resnet50_2", (), "imagenet"),
        ("augmix_resnet50", "resnet50", (), None),
        ("mine", "wrn_28_10", ("state_dict", "epoch"), None),
    ],
)
def test_published_checkpoints_are_known_by_file_name_or_fields(stem, architecture, fields, known):
    stated = published_normalization(stem, architecture, dict.fromkeys(fields))
    assert (stated.normalize if stated else None) == known
    assert stated is None or re.match("its file name|its fields", stated.stated_in)


def test_default_normalizations():
    assert default_normalization("wrn_28_10") == "none"
    assert default_normalization("wrn_40_2") is None
    assert default_normalization("resnext_29_4x32") == "half"
    assert default_normalization("resnet50_cifar") == "cifar10"
    assert default_normalization("resnet50_keras") == "caffe"
    assert default_normalization("efficientnet_lite0") == "efficientnet_lite"
    assert {default_normalization(name) for name in ("resnet50", "resnext50_32x4d", "wide_resnet50_2")} == {"imagenet"}
