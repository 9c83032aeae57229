"""What other people's state dicts tell."""

import re

import pytest
import torch

from driftlaw.errors import DataError
from driftlaw.models import build_model
from driftlaw.models.checkpoint_formats import (
    infer_architecture,
    known_family,
    our_names,
    published_normalisation,
    take_normalisation,
    usual_normalisation,
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
    ],
)
def test_a_network_is_told_from_its_names_and_shapes(name):
    tensors = tensors_of(name)
    renamed, family = our_names(tensors)
    assert renamed.keys() == tensors.keys()
    assert infer_architecture(renamed, known_family(family, tensors, "x"), "x") == name
    assert len(renamed[family.head]) == 4


@pytest.mark.parametrize("prefix", ["module.", "model.", "module.model.", "model.module.", "encoder.module."])
@pytest.mark.parametrize("name", ["resnext_11_2x8", "resnet14_cifar"])
def test_prefixes_are_taken_off(name, prefix):
    tensors = tensors_of(name)
    renamed, family = our_names({prefix + key: value for key, value in tensors.items()})
    assert renamed.keys() == tensors.keys()
    assert family is not None


def test_unknown_names_are_told_with_what_would_be_understood():
    tensors = {"features.0.weight": torch.zeros(3), "features.0.bias": torch.zeros(3)}
    renamed, family = our_names(tensors)
    assert renamed.keys() == tensors.keys()
    with pytest.raises(DataError, match=r"vgg\.pt is of no network known here .*features\.0\.weight.*wide resnet"):
        known_family(family, tensors, "vgg.pt")


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
def test_a_shape_that_is_not_known_is_told(change):
    renamed, family = our_names(change(tensors_of("resnet14")))
    with pytest.raises(DataError, match=r"odd\.pt is a ResNet of bottlenecks of a shape not known here"):
        infer_architecture(renamed, family, "odd.pt")


def test_mean_and_std_are_taken_out_of_the_weights():
    numbers = {"normalize.mean": torch.full((1, 3, 1, 1), 0.5), "normalize.std": torch.full((1, 3, 1, 1), 0.25)}
    renamed, _ = our_names(tensors_of("resnet14") | numbers)
    said = take_normalisation(renamed)
    assert said.normalize == {"mean": [0.5] * 3, "std": [0.25] * 3}
    assert renamed.keys() == tensors_of("resnet14").keys()
    assert take_normalisation(renamed) is None


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
def test_published_checkpoints_are_known_by_name_or_by_what_lies_beside_their_weights(
    stem, architecture, fields, known
):
    said = published_normalisation(stem, architecture, dict.fromkeys(fields))
    assert (said.normalize if said else None) == known
    assert said is None or re.match("its name|what lies beside", said.why)


def test_habits_of_a_kind():
    assert usual_normalisation("wrn_28_10") == "none"
    assert usual_normalisation("wrn_40_2") is None
    assert usual_normalisation("resnext_29_4x32") == "half"
    assert usual_normalisation("resnet50_cifar") == "cifar10"
    assert usual_normalisation("resnet50_keras") == "caffe"
    assert {usual_normalisation(name) for name in ("resnet50", "resnext50_32x4d", "wide_resnet50_2")} == {"imagenet"}
