"""EfficientNet-Lite0 (Tan & Le, ICML 2019, in the form for mobile devices): inverted bottlenecks with ReLU6."""

import torch.nn.functional as F
from torch import Tensor, nn

from driftlaw.models.normalize import Normalize

STAGES = ((1, 3, 1, 16), (2, 3, 2, 24), (2, 5, 2, 40), (3, 3, 2, 80), (3, 5, 1, 112), (4, 5, 2, 192), (1, 3, 1, 320))
"""Blocks, kernel side, stride of the first block and output channels of every stage."""
STEM_CHANNELS, HEAD_CHANNELS = 32, 1280
EXPANSION = 6  # of every block but the first
EPS = 1e-3  # as in TensorFlow


def _same_padding(side: int, stride: int) -> nn.Module:
    """Return the padding of TensorFlow: with stride 2 and an even input, one more on the right than on the left."""
    if stride == 1:
        return nn.ZeroPad2d(side // 2)
    left = (side - stride) // 2
    return nn.ZeroPad2d((left, side - stride - left) * 2)


class InvertedBottleneck(nn.Module):
    """A 1×1 convolution to more channels, a depthwise convolution, and a 1×1 convolution to fewer, with BatchNorm.

    The shortcut connects the ends, which have few channels. It exists if they have the same shape.

    Args:
        channels_in: Input channels.
        channels: Output channels.
        side: Side of the depthwise kernel.
        stride: Stride of the depthwise convolution.
        expansion: Factor of the channels in between; with 1, the first convolution is left out.
    """

    def __init__(self, channels_in: int, channels: int, side: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = channels_in * expansion
        self.expand_conv = nn.Conv2d(channels_in, inner, 1, bias=False) if expansion > 1 else None
        self.bn0 = nn.BatchNorm2d(inner, eps=EPS) if expansion > 1 else None
        self.pad = _same_padding(side, stride)
        self.depthwise_conv = nn.Conv2d(inner, inner, side, stride, groups=inner, bias=False)
        self.bn1 = nn.BatchNorm2d(inner, eps=EPS)
        self.project_conv = nn.Conv2d(inner, channels, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels, eps=EPS)
        self.has_shortcut = stride == 1 and channels_in == channels

    def forward(self, features: Tensor) -> Tensor:
        """Map (n, channels_in, h, w) to (n, channels, h/stride, w/stride)."""
        hidden = features
        if self.expand_conv is not None and self.bn0 is not None:
            hidden = F.relu6(self.bn0(self.expand_conv(hidden)))
        hidden = F.relu6(self.bn1(self.depthwise_conv(self.pad(hidden))))
        projected: Tensor = self.bn2(self.project_conv(hidden))
        return features + projected if self.has_shortcut else projected


class EfficientNetLite(nn.Module):
    """EfficientNet-Lite0 without dropout and stochastic depth, which only its training uses.

    Padding equals that of TensorFlow if the sides of an image are multiples of 32.

    Args:
        num_classes: Number of output classes.
        normalize: Input normalisation; none by default.
    """

    def __init__(self, num_classes: int, *, normalize: Normalize | None = None) -> None:
        super().__init__()
        self.normalize = normalize or Normalize()
        self.pad = _same_padding(3, 2)
        self.conv_stem = nn.Conv2d(3, STEM_CHANNELS, 3, 2, bias=False)
        self.bn0 = nn.BatchNorm2d(STEM_CHANNELS, eps=EPS)
        channels_in = STEM_CHANNELS
        blocks: list[nn.Module] = []
        for count, side, stride, channels in STAGES:
            for number in range(count):
                step, expansion = 1 if number else stride, EXPANSION if blocks else 1
                blocks.append(InvertedBottleneck(channels_in, channels, side, step, expansion))
                channels_in = channels
        self.blocks = nn.Sequential(*blocks)
        self.conv_head = nn.Conv2d(channels_in, HEAD_CHANNELS, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(HEAD_CHANNELS, eps=EPS)
        self.fc = nn.Linear(HEAD_CHANNELS, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")

    def forward_features(self, images: Tensor) -> Tensor:
        """Map images (n, 3, h, w) in [0, 1] to features (n, 1280)."""
        stem = F.relu6(self.bn0(self.conv_stem(self.pad(self.normalize(images)))))
        features = F.relu6(self.bn1(self.conv_head(self.blocks(stem))))
        return features.mean(dim=(2, 3))

    def forward_head(self, features: Tensor) -> Tensor:
        """Map features to logits."""
        logits: Tensor = self.fc(features)
        return logits

    def forward(self, images: Tensor) -> Tensor:
        """Map images (n, 3, h, w) in [0, 1] to logits (n, classes)."""
        return self.forward_head(self.forward_features(images))
