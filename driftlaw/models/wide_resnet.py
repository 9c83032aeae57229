"""Wide residual networks of any depth and width for small images (Zagoruyko & Komodakis, BMVC 2016)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from driftlaw.errors import UsageError
from driftlaw.models.normalize import Normalize

STEM_CHANNELS = 16


class WideBlock(nn.Module):
    """Two 3×3 convolutions, each after norm and ReLU, and a shortcut; a 1×1 convolution where the shape changes."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(channels_in)
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        changes = channels_in != channels
        self.shortcut = nn.Conv2d(channels_in, channels, 1, stride, bias=False) if changes else None

    def forward(self, features: Tensor) -> Tensor:
        """Map (n, channels_in, h, w) to (n, channels, h/stride, w/stride)."""
        active = F.relu(self.norm1(features))
        shortcut = features if self.shortcut is None else self.shortcut(active)
        hidden = F.relu(self.norm2(self.conv1(active)))
        return shortcut + self.conv2(hidden)


class WideResNet(nn.Module):
    """WRN-depth-width: a convolution, three stages of (depth − 4)/6 blocks, norm, ReLU, mean over pixels, linear head.

    Args:
        depth: 6·n + 4 layers, such as 16, 28 or 40.
        width: multiple of 16, 32 and 64 channels in the three stages.
        num_classes: size of the answer.
        normalize: the input normalisation; none by default.
    """

    def __init__(self, depth: int, width: int, num_classes: int, *, normalize: Normalize | None = None) -> None:
        super().__init__()
        if depth < 10 or (depth - 4) % 6 or width < 1:
            raise UsageError(
                f"a wide resnet of depth {depth} and width {width}: depth must be 6n + 4 (10, 16, 22, 28, …)"
            )
        blocks = (depth - 4) // 6
        channels = [STEM_CHANNELS, *(STEM_CHANNELS * width * factor for factor in (1, 2, 4))]
        self.normalize = normalize or Normalize()
        self.conv = nn.Conv2d(3, STEM_CHANNELS, 3, padding=1, bias=False)
        self.stages = nn.ModuleList(
            _stage(channels[number], channels[number + 1], blocks, stride=1 if number == 0 else 2)
            for number in range(3)
        )
        self.norm = nn.BatchNorm2d(channels[-1])
        self.head = nn.Linear(channels[-1], num_classes)
        _initialise(self)

    def forward_features(self, images: Tensor) -> Tensor:
        """Map images (n, 3, h, w) in [0, 1] to features (n, 64·width)."""
        features = self.conv(self.normalize(images))
        for stage in self.stages:
            features = stage(features)
        return F.relu(self.norm(features)).mean(dim=(2, 3))

    def forward_head(self, features: Tensor) -> Tensor:
        """Map features to logits."""
        return self.head(features)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (n, 3, h, w) in [0, 1] to logits (n, classes)."""
        return self.forward_head(self.forward_features(images))


def _stage(channels_in: int, channels: int, blocks: int, *, stride: int) -> nn.Sequential:
    first = WideBlock(channels_in, channels, stride)
    return nn.Sequential(first, *(WideBlock(channels, channels, 1) for _ in range(blocks - 1)))


def _initialise(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
