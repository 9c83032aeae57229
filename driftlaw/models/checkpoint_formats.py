"""Other people's state dicts: the names of RobustBench, AugMix, TTT++ and torchvision, and what they tell."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from driftlaw.errors import DataError
from driftlaw.models.resnet import BLOCKS

Tensors = Mapping[str, Tensor]
Renames = tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...]


@dataclass(frozen=True)
class Family:
    """Networks whose state dicts look alike.

    Attributes:
        title: what a message calls it.
        mark: a name that its state dicts hold, once renamed, and others do not.
        head: the name of the head's weights.
        renames: patterns of other people's names, and ours.
        architecture: tells the network's name from renamed tensors.
    """

    title: str
    mark: str
    head: str
    renames: Renames
    architecture: Callable[[Tensors], str | None]


@dataclass(frozen=True)
class Told:
    """A normalisation that belongs to weights, and who says so."""

    normalize: str | Mapping[str, Any]
    why: str


def _wide(tensors: Tensors) -> str | None:
    return f"wrn_{6 * _count(tensors, 'stages.0.') + 4}_{tensors['stages.0.0.conv1.weight'].shape[0] // 16}"


def _resnext(tensors: Tensors) -> str | None:
    inner, base_width = tensors["stage_1.0.conv_conv.weight"].shape[:2]
    return f"resnext_{9 * _count(tensors, 'stage_1.') + 2}_{inner // base_width}x{base_width}"


def _resnet(tensors: Tensors) -> str | None:
    blocks = tuple(_count(tensors, f"layer{number}.") for number in range(1, 5))
    depth = next((deep for deep, found in BLOCKS.items() if found == blocks), None)
    inner, width = tensors["layer1.0.conv2.weight"].shape[:2]
    groups, small = inner // width, tensors["conv1.weight"].shape[-1] == 3
    if depth is None or (small and (groups, width) != (1, 64)):
        return None
    if groups > 1:
        return f"resnext{depth}_{groups}x{width}d"
    if width > 64:
        return f"wide_resnet{depth}_{width // 64}"
    return f"resnet{depth}" + ("_cifar" if small else "_keras" if "conv1.bias" in tensors else "")


FAMILIES = (
    Family(
        "wide resnet",
        "stages.0.0.conv1.weight",
        "head.weight",
        (
            (r"^block(\d)\.layer\.(\d+)\.", lambda m: f"stages.{int(m[1]) - 1}.{m[2]}."),
            (r"(^|\.)bn(\d)\.", lambda m: f"{m[1]}norm{m[2]}."),
            (r"^norm1\.", "norm."),
            (r"^conv1\.", "conv."),
            (r"\.convShortcut\.", ".shortcut."),
            (r"^fc\.", "head."),
            # TRADES' networks hold a second first stage that answers nothing.
            (r"^sub_block1\..*", ""),
        ),
        _wide,
    ),
    Family("AugMix ResNeXt", "stage_1.0.conv_conv.weight", "classifier.weight", (), _resnext),
    Family(
        "ResNet of bottlenecks",
        "layer1.0.conv3.weight",
        "fc.weight",
        (
            (r"^head\.fc\.", "fc."),
            # TTT++'s projection for its contrastive loss answers nothing.
            (r"^head\.\d+\..*", ""),
            (r"\.shortcut\.", ".downsample."),
        ),
        _resnet,
    ),
)

_PREFIX: Renames = ((r"(^|\.)module\.", r"\1"), (r"^(?:(?:model|encoder|ext)\.)+", ""))
_NUMBERS: Renames = ((r"^(?:normali[sz]e\.)?(mean|std)$", r"\1"), (r"^mu$", "mean"), (r"^sigma$", "std"))


def our_names(tensors: Tensors) -> tuple[dict[str, Tensor], Family | None]:
    """Return a state dict under the names of the networks here, and the family it is of, if one is known."""
    bare = {_rename(name, _PREFIX + _NUMBERS): value for name, value in tensors.items()}
    for family in FAMILIES:
        renamed = {_rename(name, family.renames): value for name, value in bare.items()}
        if family.mark in renamed and family.head in renamed:
            renamed.pop("", None)
            return renamed, family
    return bare, None


def take_normalisation(renamed: dict[str, Tensor]) -> Told | None:
    """Take mean and std out of a state dict that holds them beside the weights."""
    numbers = {key: renamed.pop(key).flatten().tolist() for key in ("mean", "std") if key in renamed}
    return Told(numbers, "the mean and std that it holds") if numbers else None


def known_family(family: Family | None, names: Tensors, where: str) -> Family:
    """Return the family, or say what names were found and what would be understood."""
    if family is None:
        kinds = ", ".join(known.title for known in FAMILIES)
        found = ", ".join(list(names)[:4])
        raise DataError(f"{where} is of no network known here (its names start {found}): expected one of {kinds}")
    return family


def infer_architecture(renamed: Tensors, family: Family, where: str) -> str:
    """Return the name of the network that a state dict's names and shapes speak of."""
    try:
        name = family.architecture(renamed)
    except (LookupError, ValueError, ArithmeticError):  # a part that is not there, or of another shape
        name = None
    if name is None:
        raise DataError(
            f"{where} is a {family.title} of a shape not known here: give architecture= if it is one of ours"
        )
    return name


def published_normalisation(stem: str, architecture: str, fields: Mapping[str, Any]) -> Told | None:
    """Return the normalisation of a published checkpoint, known by its file's name or by what lies beside its weights.

    Args:
        stem: the file's name without its suffix.
        architecture: the network's name.
        fields: what the file holds, the state dict among it.
    """
    if re.search("AugMix", stem, re.IGNORECASE) and architecture.startswith(("wrn_", "resnext_")):
        return Told("half", "its name: AugMix's networks for CIFAR were trained so")
    if {"state_dict", "best_acc", "dataset", "model"} <= set(fields):
        return Told("half", "what lies beside its weights: AugMix's training code wrote it")
    if stem == "Standard" and architecture == "wrn_28_10":
        return Told("none", "its name: RobustBench's «Standard» was trained so")
    if re.fullmatch(r"(resnet|resnext|wide_resnet)\w+-[0-9a-f]{8}", stem):
        return Told("imagenet", "its name: torchvision's networks were trained so")
    return None


def usual_normalisation(architecture: str) -> str | None:
    """Return what networks of a kind are trained with where nobody says; ``None`` where habits differ."""
    if architecture == "wrn_40_2":
        return None  # RobustBench's and AugMix's have «half», those trained for their own sake mostly others
    if architecture.startswith("wrn_"):
        return "none"
    if architecture.startswith("resnext_"):
        return "half"
    if architecture.endswith("_cifar"):
        return "cifar10"
    return "caffe" if architecture.endswith("_keras") else "imagenet"


def _rename(name: str, renames: Renames) -> str:
    for pattern, replacement in renames:
        name = re.sub(pattern, replacement, name)
    return name


def _count(tensors: Tensors, prefix: str) -> int:
    """Return the number of blocks: one more than the highest number that follows ``prefix``."""
    numbers = [name[len(prefix) :].partition(".")[0] for name in tensors if name.startswith(prefix)]
    return 1 + max((int(number) for number in numbers if number.isdigit()), default=-1)
