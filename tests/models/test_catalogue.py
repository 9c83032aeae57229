"""Which networks there are."""

import pytest
import torch

from driftlaw.errors import UsageError
from driftlaw.models import build_model, list_models


def test_every_listed_network_can_be_made():
    names = [info.name for info in list_models()]
    assert {"wrn_16_1", "wrn_28_10", "wrn_40_2"} <= set(names)
    for info in list_models():
        model = build_model(info.name, num_classes=5)
        assert model.info["name"] == info.name
        assert model.info["num_classes"] == model.head.out_features == 5
        assert info.title
        assert info.input_size == 32


def test_a_network_that_is_not_listed_can_be_made_too():
    model = build_model("wrn_10_3", num_classes=4)
    assert model(torch.rand(1, 3, 32, 32)).shape == (1, 4)


def test_info_knows_the_normalisation():
    plain = build_model("wrn_10_1", num_classes=4)
    assert plain.info["normalise"] == {"mean": [0.0, 0.0, 0.0], "std": [1.0, 1.0, 1.0]}
    normed = build_model("wrn_10_1", num_classes=4, normalise={"mean": [0.5] * 3, "std": [0.25] * 3})
    assert normed.info["normalise"] == {"mean": [0.5] * 3, "std": [0.25] * 3}
    assert normed.normalise.std.flatten().tolist() == [0.25] * 3


@pytest.mark.parametrize("name", ["wrn_28_1O", "WRN-28-10", "wrn2810", "resnet", ""])
def test_an_unknown_network_is_told_with_the_known_ones(name):
    with pytest.raises(UsageError, match=f"unknown model «{name}».*wrn_28_10"):
        build_model(name, num_classes=10)


def test_a_slip_of_the_finger_is_understood():
    with pytest.raises(UsageError, match="did you mean «wrn_40_2»"):
        build_model("wnr_40_2", num_classes=10)


def test_an_impossible_depth_is_told():
    with pytest.raises(UsageError, match="depth 27"):
        build_model("wrn_27_10", num_classes=10)
