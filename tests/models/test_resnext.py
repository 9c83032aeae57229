"""ResNeXt for small images."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from driftlaw.errors import UsageError
from driftlaw.models.normalize import Normalize
from driftlaw.models.resnext import ResNeXt, ResNeXtBlock


def on_paper(depth=29, cardinality=4, base_width=32, classes=100):
    with torch.device("meta"):
        return ResNeXt(depth, cardinality, base_width, classes).eval()


def test_the_network_of_the_paper_costs_what_the_paper_says():
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        on_paper()(torch.empty(1, 3, 32, 32, device="meta"))
    assert counter.get_total_flops() / 1e9 == pytest.approx(2.16, rel=0.01)  # Table 1: 2.16 GFLOPs a forward pass


def test_parameters_are_those_of_the_original():
    """Counted once for 4×32; for 8×64 Xie et al. print 34.4 M."""
    assert sum(value.numel() for value in on_paper(classes=10).parameters()) == 6_807_882
    assert sum(value.numel() for value in on_paper(29, 8, 64, 10).parameters()) == pytest.approx(34.4e6, rel=0.005)


def test_names_are_augmixs():
    names = {name for name in on_paper(11).state_dict() if not name.endswith("num_batches_tracked")}
    norm = ("weight", "bias", "running_mean", "running_var")
    expected = {"conv_1_3x3.weight", "classifier.weight", "classifier.bias"} | {f"bn_1.{part}" for part in norm}
    for stage in (1, 2, 3):
        block = f"stage_{stage}.0"
        expected |= {f"{block}.{part}.weight" for part in ("conv_reduce", "conv_conv", "conv_expand", "downsample.0")}
        norms = ("bn_reduce", "bn", "bn_expand", "downsample.1")
        expected |= {f"{block}.{name}.{part}" for name in norms for part in norm}
    assert names == expected
    assert "stage_3.2.conv_conv.weight" in on_paper().state_dict()
    assert "stage_3.3.conv_conv.weight" not in on_paper().state_dict()


def test_groups_keep_their_number_and_grow_with_the_stage():
    model = on_paper()
    shapes = [tuple(stage[0].conv_conv.weight.shape) for stage in (model.stage_1, model.stage_2, model.stage_3)]
    assert shapes == [(128, 32, 3, 3), (256, 64, 3, 3), (512, 128, 3, 3)]


@pytest.mark.parametrize("stride", [1, 2])
def test_a_block_is_what_its_definition_says(stride):
    torch.manual_seed(0)
    block = ResNeXtBlock(6, 16, 2, 8, stride).eval()
    features, flat = torch.randn(2, 6, 8, 8), (1 + 1e-5) ** 0.5
    hidden = F.conv2d(features, block.conv_reduce.weight).div(flat).relu()
    assert hidden.shape[1] == 2 * (16 * 8 // 64)
    hidden = F.conv2d(hidden, block.conv_conv.weight, None, stride, 1, groups=2).div(flat).relu()
    hidden = F.conv2d(hidden, block.conv_expand.weight).div(flat)
    shortcut = F.conv2d(features, block.downsample[0].weight, None, stride).div(flat)
    torch.testing.assert_close(block(features), (hidden + shortcut).relu())


def test_a_block_that_keeps_its_shape_has_no_projection():
    assert ResNeXtBlock(64, 16, 2, 8, 1).downsample is None


def test_features_then_head_is_forward_behind_the_normalisation():
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
