"""Residual networks of bottlenecks (He et al., CVPR 2016) in torchvision's form, Keras' first one, and for CIFAR."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from driftlaw.errors import unknown
from driftlaw.models.normalize import Normalize

BLOCKS = {14: (1, 1, 1, 1), 26: (2, 2, 2, 2), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
"""Blocks of the four stages, by the depth that names a network."""

Form = Literal["torchvision", "keras", "cifar"]
FORMS = ("torchvision", "keras", "cifar")
STEM_CHANNELS = 64
EXPANSION = 4
KERAS_EPS = 1e-3  # BatchNormalization's own default there; torch's is 1e-5


class Bottleneck(nn.Module):
    """A 1×1, a 3×3 and a 1×1 convolution, each before a norm, and a shortcut, projected where the shape changes.

    Args:
        channels_in: of the input.
        channels: a quarter of the channels of the output.
        stride: of the block.
        inner: channels of the 3×3 convolution.
        groups: of the 3×3 convolution.
        keras: the stride is the first convolution's, not the second's, and convolutions have a bias.
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
    """ResNet-50 and its kin: a stem, four stages of bottlenecks, mean over pixels, linear head; torchvision's names.

    Args:
        depth: a key of ``BLOCKS``.
        num_classes: size of the answer.
        form: ``torchvision`` for large images; ``keras``, the same with the stride on the first convolution of a block,
            biases and a larger epsilon; ``cifar`` for small images: a 3×3 convolution and no pooling as the stem.
        groups: of the 3×3 convolutions (ResNeXt).
        width: channels of a group in the first stage (ResNeXt, wide ResNet).
        normalize: the input normalisation; none by default.
    """

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
            raise unknown(
                "form of a ResNet", f"{depth} {form}", [f"{deep} {kind}" for deep in BLOCKS for kind in FORMS]
            )
        keras, small = form == "keras", form == "cifar"
        self.normalize = normalize or Normalize()
        side, stride = (3, 1) if small else (7, 2)
        self.conv1 = nn.Conv2d(3, STEM_CHANNELS, side, stride, padding=side // 2, bias=keras)
        self.bn1 = nn.BatchNorm2d(STEM_CHANNELS, eps=KERAS_EPS if keras else 1e-5)
        # Keras pads with zeros where torch pads with −∞: after a ReLU that is the same.
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, 2, padding=1)
        channels_in = STEM_CHANNELS
        for number, blocks in enumerate(BLOCKS[depth]):
            channels = STEM_CHANNELS * 2**number
            inner = groups * (width * channels // STEM_CHANNELS)
            stage = []
            for place in range(blocks):
                step = 2 if number and not place else 1
                stage.append(Bottleneck(channels_in, channels, step, inner=inner, groups=groups, keras=keras))
                channels_in = channels * EXPANSION
            self.add_module(f"layer{number + 1}", nn.Sequential(*stage))
        self.fc = nn.Linear(channels_in, num_classes)
        _initialise(self)

    def forward_features(self, images: Tensor) -> Tensor:
        """Map images (n, 3, h, w) in [0, 1] to features (n, 2048)."""
        features = self.maxpool(F.relu(self.bn1(self.conv1(self.normalize(images)))))
        features = self.layer4(self.layer3(self.layer2(self.layer1(features))))
        return features.mean(dim=(2, 3))

    def forward_head(self, features: Tensor) -> Tensor:
        """Map features to logits."""
        return self.fc(features)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (n, 3, h, w) in [0, 1] to logits (n, classes)."""
        return self.forward_head(self.forward_features(images))


def _initialise(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
