"""Wide ResNets."""

import pytest
import torch
import torch.nn.functional as F

from driftlaw.errors import UsageError
from driftlaw.models.normalize import Normalize
from driftlaw.models.wide_resnet import WideBlock, WideResNet


def parameters(depth, width, classes=10):
    with torch.device("meta"):
        return sum(value.numel() for value in WideResNet(depth, width, classes).parameters())


@pytest.mark.parametrize(
    ("depth", "width", "count"),
    [(28, 10, 36_479_194), (40, 2, 2_243_546), (16, 1, 175_066), (16, 2, 691_674), (28, 2, 1_467_610)],
)
def test_published_parameter_counts(depth, width, count):
    assert parameters(depth, width) == count


@pytest.mark.parametrize(("depth", "width"), [(10, 1), (10, 3), (16, 2), (22, 1)])
def test_parameter_count_formula(depth, width):
    """Sum of 3×3 convolutions, 1×1 shortcuts where channels change, two parameters per normalised channel, and head."""
    expected, channels_in = 3 * 16 * 9, 16
    for channels in (16 * width, 32 * width, 64 * width):
        for _ in range((depth - 4) // 6):
            expected += 2 * channels_in + 9 * channels_in * channels + 2 * channels + 9 * channels * channels
            expected += channels_in * channels if channels_in != channels else 0
            channels_in = channels
    assert parameters(depth, width, 7) == expected + 2 * channels_in + 7 * channels_in + 7


@pytest.mark.parametrize(("depth", "width"), [(28, 2), (40, 2), (16, 4)])
def test_depth_is_the_number_of_convolutions(depth, width):
    with torch.device("meta"):
        model = WideResNet(depth, width, 10)
    convolutions = [name for name, module in model.named_modules() if isinstance(module, torch.nn.Conv2d)]
    assert len(convolutions) == depth
    assert len([name for name in convolutions if "shortcut" in name]) == 3


@pytest.mark.parametrize(("depth", "width", "classes", "size"), [(10, 1, 10, 32), (16, 2, 3, 16), (10, 3, 100, 40)])
def test_forward_is_head_of_features(depth, width, classes, size):
    model = WideResNet(depth, width, classes).eval()
    images = torch.rand(2, 3, size, size)
    features = model.forward_features(images)
    assert features.shape == (2, 64 * width)
    assert model(images).shape == (2, classes)
    assert torch.equal(model(images), model.forward_head(features))


@pytest.mark.parametrize(("depth", "width"), [(4, 1), (27, 10), (28, 0), (0, 1), (12, 2)])
def test_invalid_depth_or_width_raises(depth, width):
    with pytest.raises(UsageError, match=rf"depth {depth} and width {width}\. The depth must be 6n \+ 4"):
        WideResNet(depth, width, 10)


def test_block_with_projection_matches_its_definition():
    block = WideBlock(4, 8, stride=2).eval()
    features = torch.randn(2, 4, 6, 6)
    active = features.div((1 + block.norm1.eps) ** 0.5).relu()
    hidden = F.conv2d(active, block.conv1.weight, stride=2, padding=1).div((1 + block.norm2.eps) ** 0.5).relu()
    expected = F.conv2d(active, block.shortcut.weight, stride=2) + F.conv2d(hidden, block.conv2.weight, padding=1)
    torch.testing.assert_close(block(features), expected)


def test_block_without_projection_adds_its_input():
    block = WideBlock(4, 4, stride=1).eval()
    torch.nn.init.zeros_(block.conv2.weight)
    features = torch.randn(2, 4, 6, 6)
    assert block.shortcut is None
    assert torch.equal(block(features), features)


def test_normalisation_is_the_first_layer():
    model = WideResNet(10, 1, 10, normalize=Normalize([0.5, 0.4, 0.3], [0.2, 0.2, 0.1])).eval()
    plain = WideResNet(10, 1, 10).eval()
    plain.load_state_dict(model.state_dict())
    images = torch.rand(2, 3, 32, 32)
    mean, std = torch.tensor([0.5, 0.4, 0.3]).view(3, 1, 1), torch.tensor([0.2, 0.2, 0.1]).view(3, 1, 1)
    assert torch.equal(model(images), plain((images - mean) / std))


def test_initial_weights_depend_only_on_the_seed():
    torch.manual_seed(3)
    one = WideResNet(10, 1, 10)
    torch.manual_seed(3)
    two = WideResNet(10, 1, 10)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert one.head.bias.abs().sum() == 0
