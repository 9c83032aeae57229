"""Segmentation network: an encoder of this package and a light top-down decoder."""

import torch.nn.functional as F
from torch import Tensor, nn

from driftlaw.errors import UsageError
from driftlaw.models.resnet import EXPANSION, STEM_CHANNELS, ResNet
from driftlaw.models.wide_resnet import WideResNet

MAX_CHANNELS = 128  # of the decoder, as in Panoptic FPN


class FeaturePyramid(nn.Module):
    """Semantic feature pyramid (Kirillov et al., Panoptic feature pyramid networks, CVPR 2019), one level deep.

    The features of every stage of the encoder are projected to the same number of channels by a 1×1 convolution.
    From the last stage to the first they are enlarged bilinearly and added. A 3×3 convolution and a 1×1 convolution
    return logits, which are enlarged to the size of the images.

    Args:
        encoder: A ResNet or Wide ResNet. Its head is removed; its other weights keep their names.
        num_classes: Number of output classes.
    """

    def __init__(self, encoder: nn.Module, num_classes: int) -> None:
        super().__init__()
        if isinstance(encoder, ResNet):
            sizes = [STEM_CHANNELS * EXPANSION * 2**stage for stage in range(4)]
            encoder.fc = nn.Identity()  # type: ignore[assignment]
        elif isinstance(encoder, WideResNet):
            sizes = [stage[0].conv2.out_channels for stage in encoder.stages]  # type: ignore[index]
            encoder.norm, encoder.head = nn.Identity(), nn.Identity()  # type: ignore[assignment]
        else:
            raise UsageError(f"The encoder is a {type(encoder).__name__}. Expected a ResNet or a Wide ResNet.")
        channels = min(MAX_CHANNELS, sizes[-1] // 4)
        self.normalize, encoder.normalize = encoder.normalize, nn.Identity()  # type: ignore[assignment]
        self.encoder = encoder
        self.lateral = nn.ModuleList(_convolution(size, channels, 1) for size in sizes)
        self.smooth = _convolution(channels, channels, 3)
        self.head = nn.Conv2d(channels, num_classes, 1)

    def stages(self, images: Tensor) -> list[Tensor]:
        """Map images (n, 3, h, w) in [0, 1] to the features of every stage of the encoder."""
        encoder, images, features = self.encoder, self.normalize(images), []
        if isinstance(encoder, ResNet):
            hidden = encoder.maxpool(F.relu(encoder.bn1(encoder.conv1(images))))
            modules = [encoder.layer1, encoder.layer2, encoder.layer3, encoder.layer4]
        else:
            assert isinstance(encoder, WideResNet)
            hidden, modules = encoder.conv(images), list(encoder.stages)  # type: ignore[arg-type]
        for module in modules:
            hidden = module(hidden)
            features.append(hidden)
        return features

    def forward_features(self, images: Tensor) -> Tensor:
        """Map images (n, 3, h, w) in [0, 1] to features (n, channels, h/s, w/s), where s is the stride of stage 1."""
        *finer, last = [layer(part) for layer, part in zip(self.lateral, self.stages(images), strict=True)]
        for part in reversed(finer):
            last = part + F.interpolate(last, part.shape[-2:], mode="bilinear", align_corners=False)
        features: Tensor = self.smooth(last)
        return features

    def forward_head(self, features: Tensor) -> Tensor:
        """Map features to logits of the same resolution."""
        logits: Tensor = self.head(features)
        return logits

    def forward(self, images: Tensor) -> Tensor:
        """Map images (n, 3, h, w) in [0, 1] to logits (n, classes, h, w)."""
        logits = self.forward_head(self.forward_features(images))
        return F.interpolate(logits, images.shape[-2:], mode="bilinear", align_corners=False)


def _convolution(channels_in: int, channels: int, side: int) -> nn.Sequential:
    layer = nn.Conv2d(channels_in, channels, side, padding=side // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return nn.Sequential(layer, nn.BatchNorm2d(channels), nn.ReLU())
