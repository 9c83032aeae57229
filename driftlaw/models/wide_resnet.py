"""Wide residual networks of any depth and width for small images (Zagoruyko & Komodakis, BMVC 2016)."""

import torch.nn.functional as F
from torch import Tensor, nn

from driftlaw.errors import UsageError
from driftlaw.models.normalize import Normalize

STEM_CHANNELS = 16


class WideBlock(nn.Module):
    """Two 3×3 convolutions, each after BatchNorm and ReLU, and a shortcut (a 1×1 convolution if channels change)."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(channels_in)
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        project = channels_in != channels
        self.shortcut = nn.Conv2d(channels_in, channels, 1, stride, bias=False) if project else None

    def forward(self, features: Tensor) -> Tensor:
        """Map (n, channels_in, h, w) to (n, channels, h/stride, w/stride)."""
        active = F.relu(self.norm1(features))
        shortcut = features if self.shortcut is None else self.shortcut(active)
        hidden: Tensor = self.conv2(F.relu(self.norm2(self.conv1(active))))
        return shortcut + hidden


class WideResNet(nn.Module):
    """WRN-depth-width: a convolution, three stages of (depth − 4)/6 blocks, BatchNorm, ReLU, pooling, linear head.

    Args:
        depth: Number of layers, 6n + 4, for example 16, 28 or 40.
        width: Multiplies the 16, 32 and 64 channels of the three stages.
        num_classes: Number of output classes.
        normalize: Input normalisation; none by default.
    """

    def __init__(self, depth: int, width: int, num_classes: int, *, normalize: Normalize | None = None) -> None:
        super().__init__()
        if depth < 10 or (depth - 4) % 6 or width < 1:
            raise UsageError(
                f"Found a Wide ResNet of depth {depth} and width {width}. The depth must be 6n + 4 (10, 16, 22, …), "
                "the width at least 1."
            )
        channels = [STEM_CHANNELS, *(STEM_CHANNELS * width * factor for factor in (1, 2, 4))]
        self.normalize = normalize or Normalize()
        self.conv = nn.Conv2d(3, STEM_CHANNELS, 3, padding=1, bias=False)
        self.stages = nn.ModuleList()
        for stage in range(3):
            first = WideBlock(channels[stage], channels[stage + 1], stride=1 if stage == 0 else 2)
            others = (WideBlock(channels[stage + 1], channels[stage + 1], 1) for _ in range((depth - 4) // 6 - 1))
            self.stages.append(nn.Sequential(first, *others))
        self.norm = nn.BatchNorm2d(channels[-1])
        self.head = nn.Linear(channels[-1], num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward_features(self, images: Tensor) -> Tensor:
        """Map images (n, 3, h, w) in [0, 1] to features (n, 64·width)."""
        features = self.conv(self.normalize(images))
        for stage in self.stages:
            features = stage(features)
        return F.relu(self.norm(features)).mean(dim=(2, 3))

    def forward_head(self, features: Tensor) -> Tensor:
        """Map features to logits."""
        logits: Tensor = self.head(features)
        return logits

    def forward(self, images: Tensor) -> Tensor:
        """Map images (n, 3, h, w) in [0, 1] to logits (n, classes)."""
        return self.forward_head(self.forward_features(images))
