"""ResNeXt for small images (Xie et al., CVPR 2017), with the structure and names of AugMix's network."""

import torch.nn.functional as F
from torch import Tensor, nn

from driftlaw.errors import UsageError
from driftlaw.models.normalize import Normalize

STEM_CHANNELS = 64
EXPANSION = 4


class ResNeXtBlock(nn.Module):
    """A 1×1, a grouped 3×3 and a 1×1 convolution, each followed by BatchNorm, and a shortcut.

    Args:
        channels_in: Input channels.
        channels: A quarter of the output channels.
        cardinality: Number of groups.
        base_width: Channels per group for ``channels`` = 64; grows with ``channels``.
        stride: Stride of the 3×3 convolution.
    """

    def __init__(self, channels_in: int, channels: int, cardinality: int, base_width: int, stride: int) -> None:
        super().__init__()
        inner, outer = cardinality * (channels * base_width // STEM_CHANNELS), channels * EXPANSION
        self.conv_reduce = nn.Conv2d(channels_in, inner, 1, bias=False)
        self.bn_reduce = nn.BatchNorm2d(inner)
        self.conv_conv = nn.Conv2d(inner, inner, 3, stride, padding=1, groups=cardinality, bias=False)
        self.bn = nn.BatchNorm2d(inner)
        self.conv_expand = nn.Conv2d(inner, outer, 1, bias=False)
        self.bn_expand = nn.BatchNorm2d(outer)
        self.downsample = None
        if stride != 1 or channels_in != outer:
            projection = nn.Conv2d(channels_in, outer, 1, stride, bias=False)
            self.downsample = nn.Sequential(projection, nn.BatchNorm2d(outer))

    def forward(self, features: Tensor) -> Tensor:
        """Map (n, channels_in, h, w) to (n, 4·channels, h/stride, w/stride)."""
        shortcut = features if self.downsample is None else self.downsample(features)
        hidden = F.relu(self.bn_reduce(self.conv_reduce(features)))
        hidden = F.relu(self.bn(self.conv_conv(hidden)))
        return F.relu(shortcut + self.bn_expand(self.conv_expand(hidden)))


class ResNeXt(nn.Module):
    """ResNeXt-depth cardinality×base_width: a convolution, three stages of (depth − 2)/9 blocks, linear head.

    Args:
        depth: Number of layers, 9n + 2, for example 29.
        cardinality: Number of groups of the 3×3 convolutions.
        base_width: Channels per group in the first stage.
        num_classes: Number of output classes.
        normalize: Input normalisation; none by default.
    """

    stage_1: nn.Sequential
    stage_2: nn.Sequential
    stage_3: nn.Sequential

    def __init__(
        self, depth: int, cardinality: int, base_width: int, num_classes: int, *, normalize: Normalize | None = None
    ) -> None:
        super().__init__()
        if depth < 11 or (depth - 2) % 9 or cardinality < 1 or base_width < 1:
            raise UsageError(
                f"Found a ResNeXt of depth {depth}, {cardinality}×{base_width}. The depth must be 9n + 2 (11, 20, 29, "
                "…), cardinality and width at least 1."
            )
        self.normalize = normalize or Normalize()
        self.conv_1_3x3 = nn.Conv2d(3, STEM_CHANNELS, 3, padding=1, bias=False)
        self.bn_1 = nn.BatchNorm2d(STEM_CHANNELS)
        blocks, channels_in = (depth - 2) // 9, STEM_CHANNELS
        for number, channels in enumerate((64, 128, 256), start=1):
            stage = [
                ResNeXtBlock(channels_in, channels, cardinality, base_width, stride=1 if number == 1 else 2),
                *(ResNeXtBlock(EXPANSION * channels, channels, cardinality, base_width, 1) for _ in range(blocks - 1)),
            ]
            self.add_module(f"stage_{number}", nn.Sequential(*stage))
            channels_in = EXPANSION * channels
        self.classifier = nn.Linear(channels_in, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                # Fan-out of the ungrouped convolution, as in AugMix: grouped convolutions start smaller.
                fan = module.kernel_size[0] * module.kernel_size[1] * module.out_channels
                nn.init.normal_(module.weight, 0.0, (2.0 / fan) ** 0.5)
            elif isinstance(module, nn.Linear):
                nn.init.kaiming_normal_(module.weight)
                nn.init.zeros_(module.bias)

    def forward_features(self, images: Tensor) -> Tensor:
        """Map images (n, 3, h, w) in [0, 1] to features (n, 1024)."""
        stem = F.relu(self.bn_1(self.conv_1_3x3(self.normalize(images))))
        features: Tensor = self.stage_3(self.stage_2(self.stage_1(stem)))
        return features.mean(dim=(2, 3))

    def forward_head(self, features: Tensor) -> Tensor:
        """Map features to logits."""
        logits: Tensor = self.classifier(features)
        return logits

    def forward(self, images: Tensor) -> Tensor:
        """Map images (n, 3, h, w) in [0, 1] to logits (n, classes)."""
        return self.forward_head(self.forward_features(images))
