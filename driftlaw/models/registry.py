"""Known models by name: ``wrn_28_10`` is a Wide ResNet of depth 28 and width 10."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from torch import nn

from driftlaw._deprecated import renamed_keywords
from driftlaw.errors import unknown_name
from driftlaw.models.normalize import Normalization, Normalize, make_normalize
from driftlaw.models.resnet import Form, ResNet
from driftlaw.models.resnext import ResNeXt
from driftlaw.models.wide_resnet import WideResNet
from driftlaw.paths import PACKAGE


@dataclass(frozen=True)
class ModelInfo:
    """Description of a model: its name, a title for tables, the side of its input images, and its paper."""

    name: str
    title: str
    input_size: int
    paper: str


@dataclass(frozen=True)
class PublicWeights:
    """Published weights that a tool of the repository downloads and converts.

    Attributes:
        name: Name for ``load_model``.
        title: One-line description.
        tool: Command that gets them, in a checkout of driftlaw.
        weights_sha256: ``weights_sha256`` of the converted model.
        num_classes: Number of output classes.
        input_size: Side of an image.
        licence: Licence of the published weights.
    """

    name: str
    title: str
    tool: str
    weights_sha256: str
    num_classes: int
    input_size: int
    licence: str


_TABLES = tomllib.loads((PACKAGE / "models" / "registry.toml").read_text(encoding="utf-8"))
_MODELS = [ModelInfo(**entry) for entry in _TABLES["model"]]
PUBLIC_WEIGHTS = {entry["name"]: PublicWeights(**entry) for entry in _TABLES["weights"]}

_DEPTH = r"(14|26|50|101|152)"
_BUILDERS: tuple[tuple[str, Callable[[re.Match[str], int, Normalize], nn.Module]], ...] = (
    (r"wrn_(\d+)_(\d+)", lambda m, classes, norm: WideResNet(int(m[1]), int(m[2]), classes, normalize=norm)),
    (
        r"resnext_(\d+)_(\d+)x(\d+)",
        lambda m, classes, norm: ResNeXt(int(m[1]), int(m[2]), int(m[3]), classes, normalize=norm),
    ),
    (
        rf"resnet{_DEPTH}(?:_(keras|cifar))?",
        lambda m, classes, norm: ResNet(int(m[1]), classes, form=cast("Form", m[2] or "torchvision"), normalize=norm),
    ),
    (
        rf"resnext{_DEPTH}_(\d+)x(\d+)d",
        lambda m, classes, norm: ResNet(int(m[1]), classes, groups=int(m[2]), width=int(m[3]), normalize=norm),
    ),
    (
        rf"wide_resnet{_DEPTH}_(\d+)",
        lambda m, classes, norm: ResNet(int(m[1]), classes, width=64 * int(m[2]), normalize=norm),
    ),
)
"""Patterns of model names, and functions that build the model from the match."""


def list_models() -> list[ModelInfo]:
    """Return the models that the benchmarks use.

    ``build_model`` accepts others of the same families: ``wrn_DEPTH_WIDTH`` of any depth 6n + 4,
    ``resnext_DEPTH_GROUPSxWIDTH`` of any depth 9n + 2, and the ResNets of depth 14, 26, 101 and 152.
    """
    return list(_MODELS)


@renamed_keywords(normalise="normalize")
def build_model(name: str, *, num_classes: int, normalize: Normalization | None = None) -> nn.Module:
    """Return a model with random weights.

    >>> build_model("wrn_16_1", num_classes=10, normalize="half").info["num_classes"]
    10

    Args:
        name: For example ``wrn_28_10``.
        num_classes: Number of output classes.
        normalize: Input normalisation: a name such as ``"imagenet"``, or ``mean`` and ``std`` with three numbers each,
            and ``scale`` and ``order`` if the model expects other images than RGB in [0, 1]. None by default.
    """
    for pattern, build in _BUILDERS:
        if match := re.fullmatch(pattern, name):
            layer = make_normalize(normalize)
            model = build(match, num_classes, layer)
            info = {"name": name, "num_classes": num_classes, "normalise": layer.as_lists()}
            model.info = info  # type: ignore[assignment]
            return model
    raise unknown_name("model", name, [info.name for info in _MODELS])
