"""State dicts of other projects: names used by RobustBench, AugMix, TTT++, torchvision and EfficientNet-Lite."""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from driftlaw.errors import DataError
from driftlaw.models.normalize import NormalizationOrigin
from driftlaw.models.resnet import BLOCKS
from driftlaw.paths import PACKAGE

Tensors = Mapping[str, Tensor]
Renames = Sequence[tuple[str, str]]


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


_TABLES = tomllib.loads((PACKAGE / "models" / "checkpoint_formats.toml").read_text(encoding="utf-8"))
_ARCHITECTURES = (_wide_resnet_name, _resnext_name, _resnet_name, lambda tensors: "efficientnet_lite0")
FAMILIES = [Family(**table, architecture=name) for table, name in zip(_TABLES["family"], _ARCHITECTURES, strict=True)]


def to_driftlaw_names(tensors: Tensors) -> tuple[dict[str, Tensor], Family | None]:
    """Return a state dict with driftlaw's names, and its family if it is known."""
    unprefixed = {_rename(name, _TABLES["renames"]): value for name, value in tensors.items()}
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
    for rule in _TABLES["published"]:
        matches = re.fullmatch(rule["stem"], stem) and re.fullmatch(rule["architecture"], architecture)
        if matches and set(rule["fields"]) <= set(fields):
            return NormalizationOrigin(rule["normalize"], rule["stated_in"])
    return None


def default_normalization(architecture: str) -> str | None:
    """Return the usual normalisation of an architecture, or None if published models differ."""
    rules: Renames = _TABLES["default_normalizations"]
    return next(name for pattern, name in rules if re.fullmatch(pattern, architecture)) or None
