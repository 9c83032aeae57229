"""Bottleneck ResNets (He et al., CVPR 2016): torchvision's form, Keras' first form, and a form for CIFAR."""

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from driftlaw.errors import unknown_name
from driftlaw.models.normalize import Normalize

BLOCKS = {14: (1, 1, 1, 1), 26: (2, 2, 2, 2), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
"""Blocks of the four stages, by depth."""

Form = Literal["torchvision", "keras", "cifar"]
FORMS = ("torchvision", "keras", "cifar")
STEM_CHANNELS = 64
EXPANSION = 4
KERAS_EPS = 1e-3  # default of Keras' BatchNormalization; torch's is 1e-5


class Bottleneck(nn.Module):
    """A 1×1, a 3×3 and a 1×1 convolution, each followed by BatchNorm, and a shortcut (projected if shapes differ).

    Args:
        channels_in: Input channels.
        channels: A quarter of the output channels.
        stride: Stride of the block.
        inner: Channels of the 3×3 convolution.
        groups: Groups of the 3×3 convolution.
        keras: Put the stride on the first convolution instead of the second, and give convolutions a bias.
    """

    def __init__(
        self, channels_in: int, channels: int, stride: int, *, inner: int, groups: int = 1, keras: bool = False
    ) -> None:
        super().__init__()
        outer, eps = channels * EXPANSION, KERAS_EPS if keras else 1e-5
        first, second = (stride, 1) if keras else (1, stride)
        self.conv1 = nn.Conv2d(channels_in, inner, 1, first, bias=keras)
        self.bn1 = nn.BatchNorm2d(inner, eps=eps)
        self.conv2 = nn.Conv2d(inner, inner, 3, second, padding=1, groups=groups, bias=keras)
        self.bn2 = nn.BatchNorm2d(inner, eps=eps)
        self.conv3 = nn.Conv2d(inner, outer, 1, bias=keras)
        self.bn3 = nn.BatchNorm2d(outer, eps=eps)
        self.downsample = None
        if stride != 1 or channels_in != outer:
            projection = nn.Conv2d(channels_in, outer, 1, stride, bias=keras)
            self.downsample = nn.Sequential(projection, nn.BatchNorm2d(outer, eps=eps))

    def forward(self, features: Tensor) -> Tensor:
        """Map (n, channels_in, h, w) to (n, 4·channels, h/stride, w/stride)."""
        shortcut = features if self.downsample is None else self.downsample(features)
        hidden = F.relu(self.bn1(self.conv1(features)))
        hidden = F.relu(self.bn2(self.conv2(hidden)))
        return F.relu(shortcut + self.bn3(self.conv3(hidden)))


class ResNet(nn.Module):
    """Bottleneck ResNet with torchvision's names: stem, four stages, average pooling, linear head.

    Args:
        depth: A key of ``BLOCKS``.
        num_classes: Number of output classes.
        form: ``torchvision`` for large images; ``keras``, the same with the stride on the first convolution of a block,
            biases and a larger epsilon; ``cifar`` for small images, with a 3×3 convolution and no pooling as stem.
        groups: Groups of the 3×3 convolutions (ResNeXt).
        width: Channels per group in the first stage (ResNeXt, Wide ResNet).
        normalize: Input normalisation; none by default.
    """

    layer1: nn.Sequential
    layer2: nn.Sequential
    layer3: nn.Sequential
    layer4: nn.Sequential

    def __init__(
        self,
        depth: int,
        num_classes: int,
        *,
        form: Form = "torchvision",
        groups: int = 1,
        width: int = 64,
        normalize: Normalize | None = None,
    ) -> None:
        super().__init__()
        if depth not in BLOCKS or form not in FORMS:
            valid = [f"{known} {kind}" for known in BLOCKS for kind in FORMS]
            raise unknown_name("form of a ResNet", f"{depth} {form}", valid)
        keras, small = form == "keras", form == "cifar"
        self.normalize = normalize or Normalize()
        side, stride = (3, 1) if small else (7, 2)
        self.conv1 = nn.Conv2d(3, STEM_CHANNELS, side, stride, padding=side // 2, bias=keras)
        self.bn1 = nn.BatchNorm2d(STEM_CHANNELS, eps=KERAS_EPS if keras else 1e-5)
        # Keras pads with zeros, torch with −∞. After a ReLU the maximum is the same.
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, 2, padding=1)
        channels_in = STEM_CHANNELS
        for number, blocks in enumerate(BLOCKS[depth]):
            channels = STEM_CHANNELS * 2**number
            inner = groups * (width * channels // STEM_CHANNELS)
            stage = []
            for block in range(blocks):
                step = 2 if number and not block else 1
                stage.append(Bottleneck(channels_in, channels, step, inner=inner, groups=groups, keras=keras))
                channels_in = channels * EXPANSION
            self.add_module(f"layer{number + 1}", nn.Sequential(*stage))
        self.fc = nn.Linear(channels_in, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward_features(self, images: Tensor) -> Tensor:
        """Map images (n, 3, h, w) in [0, 1] to features (n, 2048)."""
        stem = self.maxpool(F.relu(self.bn1(self.conv1(self.normalize(images)))))
        features: Tensor = self.layer4(self.layer3(self.layer2(self.layer1(stem))))
        return features.mean(dim=(2, 3))

    def forward_head(self, features: Tensor) -> Tensor:
        """Map features to logits."""
        logits: Tensor = self.fc(features)
        return logits

    def forward(self, images: Tensor) -> Tensor:
        """Map images (n, 3, h, w) in [0, 1] to logits (n, classes)."""
        return self.forward_head(self.forward_features(images))
