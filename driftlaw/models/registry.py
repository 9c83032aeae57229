"""Known models by name: ``wrn_28_10`` is a Wide ResNet of depth 28 and width 10."""

import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

from torch import nn

from driftlaw._deprecated import renamed_keywords
from driftlaw.errors import UsageError, unknown_name
from driftlaw.files import MAX_CLASSES
from driftlaw.models.efficientnet import EfficientNetLite
from driftlaw.models.normalize import Normalization, make_normalize
from driftlaw.models.resnet import BLOCKS, Form, ResNet
from driftlaw.models.resnext import ResNeXt
from driftlaw.models.segmentation import FeaturePyramid
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
        weights_sha256: ``weights_sha256`` of the converted model, before it is rescaled.
        num_classes: Number of output classes.
        input_size: Side of an image.
        licence: Licence of the published weights.
        origin: Package that contains them.
        batch_norm_scale: Factor for ``rescale_batch_norm``, which ``load_model`` applies.
    """

    name: str
    title: str
    tool: str
    weights_sha256: str
    num_classes: int
    input_size: int
    licence: str
    origin: str
    batch_norm_scale: float = 1.0


_TABLES = tomllib.loads((PACKAGE / "models" / "registry.toml").read_text(encoding="utf-8"))
_MODELS = [ModelInfo(**entry) for entry in _TABLES["model"]]
PUBLIC_WEIGHTS = {entry["name"]: PublicWeights(**entry) for entry in _TABLES["weights"]}

MAX_PARAMETERS = 2**30
"""Larger models are refused: a file of a few bytes can name any model. The largest published ones have 0.8 · 2³⁰."""
MAX_DEPTH = 2000
PYRAMID_PREFIX = "fpn_"
"""Start of the names of segmentation networks; the name of their encoder follows."""
_DEPTH = r"(14|26|50|101|152)"
_NUMBER = r"(\d{1,9})"


def list_models() -> list[ModelInfo]:
    """Return the models that the benchmarks use.

    ``build_model`` accepts others of the same families: ``wrn_DEPTH_WIDTH`` of any depth 6n + 4,
    ``resnext_DEPTH_GROUPSxWIDTH`` of any depth 9n + 2, and the ResNets of depth 14, 26, 101 and 152. ``fpn_NAME`` is a
    segmentation network with the ResNet or Wide ResNet NAME as encoder.
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

    Raises:
        UsageError: The name is unknown, or the model would have more than 2,000 layers, 2³⁰ parameters or 10⁶ classes.
    """
    layer = make_normalize(normalize)
    depth = parameters = 0
    if name.startswith(PYRAMID_PREFIX):
        # Its one output is replaced by the decoder.
        encoder = build_model(name.removeprefix(PYRAMID_PREFIX), num_classes=1, normalize=normalize)
        make: Callable[..., nn.Module] = lambda num_classes, normalize: FeaturePyramid(encoder, num_classes)  # noqa: E731
    elif match := re.fullmatch(rf"wrn_{_NUMBER}_{_NUMBER}", name):
        depth, width = int(match[1]), int(match[2])
        parameters = 16_128 * depth * width**2
        make = partial(WideResNet, depth, width)
    elif match := re.fullmatch(rf"resnext_{_NUMBER}_{_NUMBER}x{_NUMBER}", name):
        depth, groups, width = int(match[1]), int(match[2]), int(match[3])
        parameters = _bottleneck_size((depth // 9,) * 3, groups, width)
        make = partial(ResNeXt, depth, groups, width)
    elif match := re.fullmatch(rf"resnet{_DEPTH}(?:_(keras|cifar))?", name):
        make = partial(ResNet, int(match[1]), form=cast("Form", match[2] or "torchvision"))
    elif match := re.fullmatch(rf"(?:resnext{_DEPTH}_{_NUMBER}x{_NUMBER}d|wide_resnet{_DEPTH}_{_NUMBER})", name):
        depth, groups = int(match[1] or match[4]), int(match[2] or 1)
        width = int(match[3]) if match[3] else 64 * int(match[5])
        parameters = _bottleneck_size(BLOCKS[depth], groups, width)
        make = partial(ResNet, depth, groups=groups, width=width)
    elif name == "efficientnet_lite0":
        make = EfficientNetLite
    else:
        raise unknown_name("model", name, [info.name for info in _MODELS])
    if depth > MAX_DEPTH or parameters > MAX_PARAMETERS or num_classes > MAX_CLASSES:  # before memory is allocated
        raise UsageError(
            f"'{name}' with {num_classes:,} classes is too large. At most {MAX_DEPTH:,} layers, {MAX_PARAMETERS:,} "
            f"parameters and {MAX_CLASSES:,} classes are supported."
        )
    model = make(num_classes=num_classes, normalize=layer)
    model.info = {"name": name, "num_classes": num_classes, "normalise": layer.as_lists()}  # type: ignore[assignment]
    return model


def _bottleneck_size(stages: Sequence[int], groups: int, width: int) -> int:
    """Return about the number of weights of blocks of two 1×1 convolutions and a grouped 3×3 convolution."""
    return sum(blocks << 2 * stage for stage, blocks in enumerate(stages)) * groups * width * (512 + 9 * width)
