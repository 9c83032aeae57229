"""Which parameters are chosen, in which order."""

from __future__ import annotations

from torch import nn

from driftlaw.components.parameters import select_parameters
from driftlaw.models import build_model


def test_conv_and_norm_leave_only_the_head_out():
    model = build_model("wrn_10_1", num_classes=4)
    chosen = select_parameters(model, ["conv", "norm"])
    assert set(dict(model.named_parameters())) - set(chosen) == {"head.weight", "head.bias"}
    assert list(chosen) == [name for name, _ in model.named_parameters() if name in chosen]


def test_norm_takes_every_kind_of_norm_layer_and_nothing_without_parameters():
    model = nn.Sequential(nn.BatchNorm2d(2), nn.GroupNorm(1, 2), nn.LayerNorm(2), nn.BatchNorm2d(2, affine=False))
    assert list(select_parameters(model, ["norm"])) == [
        "0.weight",
        "0.bias",
        "1.weight",
        "1.bias",
        "2.weight",
        "2.bias",
    ]


def test_a_bare_layer_can_be_the_whole_model():
    assert list(select_parameters(nn.Conv2d(3, 2, 1), ["conv"])) == ["weight", "bias"]


def test_linear_takes_the_projections_of_attention_in():
    names = list(select_parameters(nn.MultiheadAttention(4, 2), ["linear"]))
    assert names == ["in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"]
