"""Detection of stages in models of several layouts."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch
from torch import nn

from driftlaw.components.stages import freeze_last_stage, model_stages, select_stages
from driftlaw.errors import UsageError
from driftlaw.models import build_model


def block(channels: int = 2) -> nn.Module:
    return nn.Sequential(nn.Conv2d(channels, channels, 1), nn.BatchNorm2d(channels), nn.Conv2d(channels, channels, 1))


def named(**parts: nn.Module) -> nn.Module:
    return nn.Sequential(OrderedDict(parts))


def torchvision_resnet() -> nn.Module:
    layers = {f"layer{number}": nn.Sequential(block(), block()) for number in range(1, 5)}
    return named(conv1=nn.Conv2d(3, 2, 1), bn1=nn.BatchNorm2d(2), **layers, fc=nn.Linear(2, 4))


class Vit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cls_token = nn.Parameter(torch.zeros(1, 1, 2))
        self.patch_embed = named(proj=nn.Conv2d(3, 2, 4))
        self.blocks = nn.Sequential(
            *(named(norm1=nn.LayerNorm(2), attn=nn.Linear(2, 2), mlp=nn.Linear(2, 2)) for _ in range(12))
        )
        self.norm = nn.LayerNorm(2)
        self.head = nn.Linear(2, 4)


def densenet() -> nn.Module:
    return named(
        features=named(
            conv0=nn.Conv2d(3, 2, 1),
            denseblock1=block(),
            transition1=named(norm=nn.BatchNorm2d(2), conv=nn.Conv2d(2, 2, 1)),
            denseblock2=block(),
            norm5=nn.BatchNorm2d(2),
        ),
        classifier=nn.Linear(2, 4),
    )


LAYOUTS = {
    "ours": (build_model("wrn_10_1", num_classes=4), ["stages.0", "stages.1", "stages.2"]),
    "torchvision": (torchvision_resnet(), ["layer1", "layer2", "layer3", "layer4"]),
    "behind a normalization": (
        nn.Sequential(nn.Identity(), torchvision_resnet()),
        ["1.layer1", "1.layer2", "1.layer3", "1.layer4"],
    ),
    "robustbench": (
        named(
            conv1=nn.Conv2d(3, 2, 1),
            block1=named(layer=nn.Sequential(block())),
            block2=named(layer=nn.Sequential(block())),
            bn1=nn.BatchNorm2d(2),
            fc=nn.Linear(2, 4),
        ),
        ["block1", "block2"],
    ),
    "underscored": (
        named(conv_1_3x3=nn.Conv2d(3, 2, 1), stage_1=block(), stage_2=block(), stage_3=block(), fc=nn.Linear(2, 4)),
        ["stage_1", "stage_2", "stage_3"],
    ),
    "hugging face": (
        named(
            resnet=named(
                embedder=nn.Conv2d(3, 2, 1), encoder=named(stages=nn.ModuleList([nn.Sequential(block()), block()]))
            ),
            classifier=nn.Sequential(nn.Flatten(), nn.Linear(2, 4)),
        ),
        ["resnet.encoder.stages.0", "resnet.encoder.stages.1"],
    ),
    "vit": (Vit(), [f"blocks.{number}" for number in range(12)]),
    "densenet": (densenet(), ["features.denseblock1", "features.denseblock2"]),
    "blocks among layers": (
        nn.Sequential(
            nn.Conv2d(3, 2, 1), nn.BatchNorm2d(2), block(), nn.ReLU(), block(), nn.Flatten(), nn.Linear(2, 4)
        ),
        ["2", "4"],
    ),
    "layers alone": (
        nn.Sequential(nn.Conv2d(3, 2, 1), nn.ReLU(), nn.Conv2d(2, 2, 1), nn.Conv2d(2, 2, 1), nn.Linear(2, 4)),
        ["2", "3"],
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_stem_is_first_and_the_stages_follow_in_order(layout):
    model, expected = LAYOUTS[layout]
    assert list(model_stages(model)) == ["stem", *expected]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_parameter_except_the_head_belongs_to_one_stage(layout):
    model, _ = LAYOUTS[layout]
    head = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)][-1]
    assigned = [name for names in model_stages(model).values() for name in names]
    assert assigned == [name for name, _ in model.named_parameters() if not name.startswith(f"{head}.")]


def test_parameters_before_the_first_stage_are_the_stem_and_others_belong_to_the_stage_before():
    stages = model_stages(densenet())
    assert stages["stem"] == ["features.conv0.weight", "features.conv0.bias"]
    assert "features.transition1.conv.weight" in stages["features.denseblock1"]
    assert "features.norm5.bias" in stages["features.denseblock2"]
    assert model_stages(build_model("wrn_10_1", num_classes=4))["stages.2"][-2:] == ["norm.weight", "norm.bias"]
    assert "cls_token" in model_stages(Vit())["stem"]


def test_at_the_same_depth_the_larger_family_is_used():
    small, large = block(2), block(4)
    model = named(aux1=small, aux2=block(2), stage1=large, stage2=block(4))
    assert list(model_stages(model)) == ["stem", "stage1", "stage2"]


def test_a_model_of_one_layer_is_all_stem():
    assert model_stages(nn.Sequential(nn.Conv2d(3, 2, 1))) == {"stem": ["0.weight", "0.bias"]}
    assert model_stages(nn.Linear(3, 2)) == {"stem": []}


@pytest.mark.parametrize(
    ("part", "expected"),
    [("stage", ["b"]), ("up_to", ["stem", "a", "b"]), ("from", ["b", "c"])],
)
def test_the_stage_itself_is_always_selected(part, expected):
    stages = {"stem": ["s"], "a": ["x"], "b": ["y"], "c": ["z"]}
    assert select_stages(stages, part, 2) == {name: stages[name] for name in expected}


def test_an_unknown_stage_is_an_error_that_lists_the_stages():
    with pytest.raises(UsageError, match=r"no stage 5. It has 4 stages: 0 \(stem\), 1 \(stages\.0\), 2"):
        select_stages(model_stages(build_model("wrn_10_1", num_classes=4)), "stage", 5)


def frozen_by(model: nn.Module) -> set[str]:
    model.requires_grad_(True)
    freeze_last_stage(model)
    return {name for name, value in model.named_parameters() if not value.requires_grad}


def test_the_last_stage_of_a_resnet_is_frozen():
    assert {name.split(".")[0] for name in frozen_by(torchvision_resnet())} == {"layer4"}
    behind = frozen_by(nn.Sequential(nn.Identity(), torchvision_resnet()))
    assert {".".join(name.split(".")[:2]) for name in behind} == {"1.layer4"}
    assert len(behind) == 2 * 6


def test_the_last_quarter_of_a_vision_transformer_and_its_last_norm_layer_are_frozen():
    frozen = frozen_by(Vit())
    modules = {
        name.rpartition(".")[0].replace(".norm1", "").replace(".attn", "").replace(".mlp", "") for name in frozen
    }
    assert modules == {"blocks.9", "blocks.10", "blocks.11", "norm"}


@pytest.mark.parametrize("model", [build_model("wrn_10_1", num_classes=4), densenet(), nn.Conv2d(3, 4, 1)])
def test_nothing_is_frozen_in_other_models(model):
    assert frozen_by(model) == set()
