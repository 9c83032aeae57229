"""State dicts of other projects: names used by RobustBench, AugMix, TTT++ and torchvision."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from driftlaw.errors import DataError
from driftlaw.models.normalize import NormalizationOrigin
from driftlaw.models.resnet import BLOCKS

Tensors = Mapping[str, Tensor]
Renames = tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...]


@dataclass(frozen=True)
class Family:
    """Models whose state dicts share their names.

    Attributes:
        title: Name in messages.
        mark: A tensor name that only this family has, after renaming.
        head: Name of the head's weights.
        renames: Patterns of foreign names, and driftlaw's names.
        architecture: Returns the model name from renamed tensors.
    """

    title: str
    mark: str
    head: str
    renames: Renames
    architecture: Callable[[Tensors], str | None]


def _wide_resnet_name(tensors: Tensors) -> str | None:
    return f"wrn_{6 * _num_blocks(tensors, 'stages.0.') + 4}_{tensors['stages.0.0.conv1.weight'].shape[0] // 16}"


def _resnext_name(tensors: Tensors) -> str | None:
    inner, base_width = tensors["stage_1.0.conv_conv.weight"].shape[:2]
    return f"resnext_{9 * _num_blocks(tensors, 'stage_1.') + 2}_{inner // base_width}x{base_width}"


def _resnet_name(tensors: Tensors) -> str | None:
    blocks = tuple(_num_blocks(tensors, f"layer{number}.") for number in range(1, 5))
    depth = next((depth for depth, numbers in BLOCKS.items() if numbers == blocks), None)
    inner, width = tensors["layer1.0.conv2.weight"].shape[:2]
    groups, small = inner // width, tensors["conv1.weight"].shape[-1] == 3
    if depth is None or (small and (groups, width) != (1, 64)):
        return None
    if groups > 1:
        return f"resnext{depth}_{groups}x{width}d"
    if width > 64:
        return f"wide_resnet{depth}_{width // 64}"
    return f"resnet{depth}" + ("_cifar" if small else "_keras" if "conv1.bias" in tensors else "")


def _num_blocks(tensors: Tensors, prefix: str) -> int:
    """Return one more than the highest block number that follows ``prefix``."""
    numbers = [name[len(prefix) :].partition(".")[0] for name in tensors if name.startswith(prefix)]
    return 1 + max((int(number) for number in numbers if number.isdigit()), default=-1)


FAMILIES = (
    Family(
        "Wide ResNet",
        "stages.0.0.conv1.weight",
        "head.weight",
        (
            (r"^block(\d)\.layer\.(\d+)\.", lambda m: f"stages.{int(m[1]) - 1}.{m[2]}."),
            (r"(^|\.)bn(\d)\.", lambda m: f"{m[1]}norm{m[2]}."),
            (r"^norm1\.", "norm."),
            (r"^conv1\.", "conv."),
            (r"\.convShortcut\.", ".shortcut."),
            (r"^fc\.", "head."),
            # TRADES' models contain a second first stage that the forward pass does not use.
            (r"^sub_block1\..*", ""),
        ),
        _wide_resnet_name,
    ),
    Family("AugMix ResNeXt", "stage_1.0.conv_conv.weight", "classifier.weight", (), _resnext_name),
    Family(
        "bottleneck ResNet",
        "layer1.0.conv3.weight",
        "fc.weight",
        (
            (r"^head\.fc\.", "fc."),
            # TTT++'s projection head for its contrastive loss does not produce logits.
            (r"^head\.\d+\..*", ""),
            (r"\.shortcut\.", ".downsample."),
        ),
        _resnet_name,
    ),
)

_PREFIX: Renames = ((r"(^|\.)module\.", r"\1"), (r"^(?:(?:model|encoder|ext)\.)+", ""))
_NUMBERS: Renames = ((r"^(?:normali[sz]e\.)?(mean|std)$", r"\1"), (r"^mu$", "mean"), (r"^sigma$", "std"))


def to_driftlaw_names(tensors: Tensors) -> tuple[dict[str, Tensor], Family | None]:
    """Return a state dict with driftlaw's names, and its family if it is known."""
    unprefixed = {_rename(name, _PREFIX + _NUMBERS): value for name, value in tensors.items()}
    for family in FAMILIES:
        renamed = {_rename(name, family.renames): value for name, value in unprefixed.items()}
        if family.mark in renamed and family.head in renamed:
            renamed.pop("", None)
            return renamed, family
    return unprefixed, None


def _rename(name: str, renames: Renames) -> str:
    for pattern, replacement in renames:
        name = re.sub(pattern, replacement, name)
    return name


def pop_normalization(renamed: dict[str, Tensor]) -> NormalizationOrigin | None:
    """Remove mean and std from a state dict and return them, if it contains them."""
    numbers: dict[str, Any] = {key: renamed.pop(key).flatten().tolist() for key in ("mean", "std") if key in renamed}
    return NormalizationOrigin(numbers, "its tensors mean and std") if numbers else None


def infer_architecture(renamed: Tensors, family: Family | None, where: str) -> str:
    """Return the model name for a state dict, from its names and shapes.

    Raises:
        DataError: The family or its shape is not known.
    """
    if family is None:
        titles = ", ".join(known.title for known in FAMILIES)
        names = ", ".join(list(renamed)[:4])
        raise DataError(f"{where} is not of a known architecture (first names: {names}). Expected one of {titles}.")
    try:
        name = family.architecture(renamed)
    except (LookupError, ValueError, ArithmeticError):  # a tensor is missing or has another shape
        name = None
    if name is None:
        raise DataError(f"{where} is a {family.title} of an unknown shape. Pass architecture= if driftlaw has it.")
    return name


def published_normalization(stem: str, architecture: str, fields: Mapping[str, Any]) -> NormalizationOrigin | None:
    """Return the normalisation of a published checkpoint, identified by its file name or its other contents.

    Args:
        stem: File name without suffix.
        architecture: Name of the model.
        fields: Top-level contents of the file, with the state dict.
    """
    if re.search("AugMix", stem, re.IGNORECASE) and architecture.startswith(("wrn_", "resnext_")):
        return NormalizationOrigin("half", "its file name (AugMix's CIFAR models)")
    if {"state_dict", "best_acc", "dataset", "model"} <= set(fields):
        return NormalizationOrigin("half", "its fields (written by AugMix's training code)")
    if stem == "Standard" and architecture == "wrn_28_10":
        return NormalizationOrigin("none", "its file name (RobustBench's 'Standard')")
    if re.fullmatch(r"(resnet|resnext|wide_resnet)\w+-[0-9a-f]{8}", stem):
        return NormalizationOrigin("imagenet", "its file name (torchvision's models)")
    return None


def default_normalization(architecture: str) -> str | None:
    """Return the usual normalisation of an architecture, or None if published models differ."""
    if architecture == "wrn_40_2":
        return None  # 'half' in RobustBench and AugMix, others elsewhere
    if architecture.startswith("wrn_"):
        return "none"
    if architecture.startswith("resnext_"):
        return "half"
    if architecture.endswith("_cifar"):
        return "cifar10"
    return "caffe" if architecture.endswith("_keras") else "imagenet"
