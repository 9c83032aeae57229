"""ResNeXt for small images."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from driftlaw.errors import UsageError
from driftlaw.models.normalize import Normalize
from driftlaw.models.resnext import ResNeXt, ResNeXtBlock


def meta_model(depth=29, cardinality=4, base_width=32, classes=100):
    with torch.device("meta"):
        return ResNeXt(depth, cardinality, base_width, classes).eval()


def test_published_flops():
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        meta_model()(torch.empty(1, 3, 32, 32, device="meta"))
    assert counter.get_total_flops() / 1e9 == pytest.approx(2.16, rel=0.01)  # Table 1: 2.16 GFLOPs per forward pass


def test_published_parameter_counts():
    """For 8×64 Xie et al. report 34.4 M."""
    assert sum(value.numel() for value in meta_model(classes=10).parameters()) == 6_807_882
    assert sum(value.numel() for value in meta_model(29, 8, 64, 10).parameters()) == pytest.approx(34.4e6, rel=0.005)


def test_names_are_those_of_augmix():
    names = {name for name in meta_model(11).state_dict() if not name.endswith("num_batches_tracked")}
    norm = ("weight", "bias", "running_mean", "running_var")
    expected = {"conv_1_3x3.weight", "classifier.weight", "classifier.bias"} | {f"bn_1.{part}" for part in norm}
    for stage in (1, 2, 3):
        block = f"stage_{stage}.0"
        expected |= {f"{block}.{part}.weight" for part in ("conv_reduce", "conv_conv", "conv_expand", "downsample.0")}
        norms = ("bn_reduce", "bn", "bn_expand", "downsample.1")
        expected |= {f"{block}.{name}.{part}" for name in norms for part in norm}
    assert names == expected
    assert "stage_3.2.conv_conv.weight" in meta_model().state_dict()
    assert "stage_3.3.conv_conv.weight" not in meta_model().state_dict()


def test_groups_have_constant_number_and_growing_width():
    model = meta_model()
    shapes = [tuple(stage[0].conv_conv.weight.shape) for stage in (model.stage_1, model.stage_2, model.stage_3)]
    assert shapes == [(128, 32, 3, 3), (256, 64, 3, 3), (512, 128, 3, 3)]


@pytest.mark.parametrize("stride", [1, 2])
def test_block_matches_its_definition(stride):
    torch.manual_seed(0)
    block = ResNeXtBlock(6, 16, 2, 8, stride).eval()
    features, flat = torch.randn(2, 6, 8, 8), (1 + 1e-5) ** 0.5
    hidden = F.conv2d(features, block.conv_reduce.weight).div(flat).relu()
    assert hidden.shape[1] == 2 * (16 * 8 // 64)
    hidden = F.conv2d(hidden, block.conv_conv.weight, None, stride, 1, groups=2).div(flat).relu()
    hidden = F.conv2d(hidden, block.conv_expand.weight).div(flat)
    shortcut = F.conv2d(features, block.downsample[0].weight, None, stride).div(flat)
    torch.testing.assert_close(block(features), (hidden + shortcut).relu())


def test_block_without_projection():
    assert ResNeXtBlock(64, 16, 2, 8, 1).downsample is None


def test_forward_is_head_of_features_after_normalization():
    torch.manual_seed(0)
    model = ResNeXt(11, 2, 8, 5, normalize=Normalize([0.5] * 3, [0.5] * 3)).eval()
    images = torch.rand(2, 3, 32, 32)
    features = model.forward_features(images)
    assert features.shape == (2, 1024)
    assert torch.equal(model(images), model.forward_head(features))
    plain = ResNeXt(11, 2, 8, 5).eval()
    plain.load_state_dict(model.state_dict())
    assert torch.equal(model(images), plain((images - 0.5) / 0.5))


@pytest.mark.parametrize("shape", [(28, 4, 32), (2, 4, 32), (29, 0, 32), (29, 4, 0)])
def test_invalid_shape_raises(shape):
    with pytest.raises(UsageError, match=f"depth {shape[0]}, {shape[1]}×{shape[2]}. The depth must be 9n"):
        ResNeXt(*shape, 10)
