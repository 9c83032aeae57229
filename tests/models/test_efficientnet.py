"""EfficientNet-Lite0."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from driftlaw.models import build_model, fold_batch_norm
from driftlaw.models.efficientnet import EfficientNetLite, InvertedBottleneck


@pytest.fixture(scope="module")
def model():
    """The network with random weights and statistics, in float64."""
    torch.manual_seed(0)
    network = build_model("efficientnet_lite0", num_classes=5, normalize="efficientnet_lite")
    for name, value in network.state_dict().items():
        if value.ndim == 1 and value.is_floating_point():
            value.uniform_(-0.5, 0.5) if name.endswith(("bias", "mean")) else value.uniform_(0.5, 1.5)
    return network.double().eval()


def test_size_is_the_published_one():
    with torch.device("meta"):
        network = EfficientNetLite(1000)
        counter = FlopCounterMode(display=False)
        with counter:
            network.eval()(torch.rand(1, 3, 224, 224))
    assert sum(value.numel() for value in network.parameters()) == 4_652_008  # 4.7 M
    assert counter.get_total_flops() / 2e6 == pytest.approx(385, abs=1)  # million multiply-adds
    assert len(network.blocks) == 16
    assert {layer.eps for layer in network.modules() if isinstance(layer, nn.BatchNorm2d)} == {1e-3}
    assert sum(block.has_shortcut for block in network.blocks) == 9


def test_images_are_normalized_as_in_training(model):
    images = torch.tensor([0.0, 127 / 255, 1.0], dtype=torch.float64).view(1, 3, 1, 1)
    torch.testing.assert_close(model.normalize(images).flatten().tolist(), [-127 / 128, 0.0, 1.0])


@pytest.mark.parametrize("side", [3, 5])
@pytest.mark.parametrize("stride", [1, 2])
def test_padding_is_that_of_tensorflow(side, stride):
    """TensorFlow pads with (ceil(n / stride) - 1) * stride + side - n zeros, and puts the odd one on the right."""
    block = InvertedBottleneck(1, 1, side, stride, 1).eval()
    images = torch.rand(1, 1, 8, 8)
    total = max((-(-8 // stride) - 1) * stride + side - 8, 0)
    padded = F.pad(images, (total // 2, total - total // 2) * 2)
    expected = F.conv2d(padded, block.depthwise_conv.weight, stride=stride)
    assert torch.equal(block.depthwise_conv(block.pad(images)), expected)
    assert expected.shape[-1] == 8 // stride


def test_block_matches_its_definition():
    torch.manual_seed(0)
    block = InvertedBottleneck(4, 4, 3, 1, 6).eval()
    features = 3 * torch.randn(2, 4, 6, 6)
    flat = (1 + 1e-3) ** 0.5  # BatchNorm with mean 0 and variance 1
    hidden = (F.conv2d(features, block.expand_conv.weight) / flat).clamp(0, 6)
    hidden = (F.conv2d(hidden, block.depthwise_conv.weight, padding=1, groups=24) / flat).clamp(0, 6)
    expected = features + F.conv2d(hidden, block.project_conv.weight) / flat
    torch.testing.assert_close(block(features), expected)


def test_forward_is_head_of_features(model):
    images = torch.rand(2, 3, 64, 96, dtype=torch.float64)
    features = model.forward_features(images)
    assert features.shape == (2, 1280)
    assert torch.equal(model(images), model.forward_head(features))
    assert model(images).shape == (2, 5)


def test_batch_norm_can_be_folded(model):
    folded = fold_batch_norm(model)
    assert not any(isinstance(layer, nn.BatchNorm2d) for layer in folded.modules())
    images = torch.rand(2, 3, 64, 64, dtype=torch.float64)
    torch.testing.assert_close(folded(images), model(images))
