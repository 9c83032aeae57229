"""Known models by name: ``wrn_28_10`` is a Wide ResNet of depth 28 and width 10."""

import re
import tomllib
from dataclasses import dataclass
from typing import cast

from torch import nn

from driftlaw._deprecated import renamed_keywords
from driftlaw.errors import unknown_name
from driftlaw.models.normalize import Normalization, make_normalize
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
    layer = make_normalize(normalize)
    if match := re.fullmatch(r"wrn_(\d+)_(\d+)", name):
        model: nn.Module = WideResNet(int(match[1]), int(match[2]), num_classes, normalize=layer)
    elif match := re.fullmatch(r"resnext_(\d+)_(\d+)x(\d+)", name):
        model = ResNeXt(int(match[1]), int(match[2]), int(match[3]), num_classes, normalize=layer)
    elif match := re.fullmatch(rf"resnet{_DEPTH}(?:_(keras|cifar))?", name):
        form = cast("Form", match[2] or "torchvision")
        model = ResNet(int(match[1]), num_classes, form=form, normalize=layer)
    elif match := re.fullmatch(rf"resnext{_DEPTH}_(\d+)x(\d+)d", name):
        model = ResNet(int(match[1]), num_classes, groups=int(match[2]), width=int(match[3]), normalize=layer)
    elif match := re.fullmatch(rf"wide_resnet{_DEPTH}_(\d+)", name):
        model = ResNet(int(match[1]), num_classes, width=64 * int(match[2]), normalize=layer)
    else:
        raise unknown_name("model", name, [info.name for info in _MODELS])
    model.info = {"name": name, "num_classes": num_classes, "normalise": layer.as_lists()}  # type: ignore[assignment]
    return model
