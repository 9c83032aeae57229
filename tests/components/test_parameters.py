"""Selection of parameters by the kind of layer."""

from __future__ import annotations

from torch import nn

from driftlaw.components.parameters import adapt_layers, select_parameters
from driftlaw.models import build_model


def test_conv_and_norm_select_everything_except_the_head():
    model = build_model("wrn_10_1", num_classes=4)
    selected = select_parameters(model, ["conv", "norm"])
    assert set(dict(model.named_parameters())) - set(selected) == {"head.weight", "head.bias"}
    assert list(selected) == [name for name, _ in model.named_parameters() if name in selected]


def test_norm_selects_every_kind_of_normalization_layer_with_parameters():
    model = nn.Sequential(nn.BatchNorm2d(2), nn.GroupNorm(1, 2), nn.LayerNorm(2), nn.BatchNorm2d(2, affine=False))
    expected = [f"{index}.{name}" for index in range(3) for name in ("weight", "bias")]
    assert list(select_parameters(model, ["norm"])) == expected


def test_the_model_can_be_a_single_layer():
    assert list(select_parameters(nn.Conv2d(3, 2, 1), ["conv"])) == ["weight", "bias"]


def test_linear_includes_the_projections_of_attention():
    names = list(select_parameters(nn.MultiheadAttention(4, 2), ["linear"]))
    assert names == ["in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"]


def test_linear_layers_do_not_include_the_head_unless_it_is_named():
    def adapted(*layers: str) -> list[str]:
        model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2)).requires_grad_(False)
        adapt_layers(model, layers)
        return [name for name, value in model.named_parameters() if value.requires_grad]

    assert adapted("norm") == ["1.weight", "1.bias"]
    assert adapted("linear") == ["0.weight", "0.bias"]
    assert adapted("head") == ["2.weight", "2.bias"]
    assert adapted("linear", "head") == ["0.weight", "0.bias", "2.weight", "2.bias"]
