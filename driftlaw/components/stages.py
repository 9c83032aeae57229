"""The stages of any network, from the input to the output, found from the names and the weight of its parts.

Parts of one parent whose names differ by a number alone, and that each hold two layers with weights or more, are the
stages: ``layer1`` to ``layer4``, ``stages.0`` to ``stages.2``, ``blocks.0`` to ``blocks.11``. The outermost such family
is taken, of two equally far out the one with more parameters. Before the first stage lies the stem; what follows a
stage belongs to it; the head, the last linear layer, belongs to none. In a network without such a family every
convolution or linear layer is a stage, and the first of them the stem.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from torch import nn

from driftlaw.errors import UsageError

STEM = "stem"
WEIGHT_LAYERS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)
LAYERS_OF_A_STAGE = 2


def model_stages(model: nn.Module) -> dict[str, list[str]]:
    """Return the stages in order, the stem first: the name of each and the names of its parameters.

    >>> layers = [nn.Conv2d(3, 2, 1), nn.BatchNorm2d(2), nn.Conv2d(2, 2, 1), nn.Flatten(), nn.Linear(2, 2)]
    >>> model_stages(nn.Sequential(*layers))
    {'stem': ['0.weight', '0.bias', '1.weight', '1.bias'], '2': ['2.weight', '2.bias']}
    """
    head = _head_of(model)
    starts = _outermost_family(model) or [name for name in _weight_layers(model) if name != head][1:]
    stages: dict[str, list[str]] = {STEM: [], **{name: [] for name in starts}}
    current = STEM
    for name, _ in model.named_parameters():
        current = next((start for start in starts if _is_inside(name, start)), current)
        if head is None or not _is_inside(name, head):
            stages[current].append(name)
    return stages


def select_stages(
    stages: Mapping[str, Sequence[str]], part: Literal["stage", "up_to", "from"], number: int
) -> dict[str, list[str]]:
    """Return one stage, those from the input up to it, or those from it to the output.

    Args:
        stages: what ``model_stages`` found.
        part: ``stage``, ``up_to`` or ``from``; the stage itself is always in it.
        number: of the stage; 0 is the stem.

    Raises:
        UsageError: there is no stage of that number.
    """
    names = list(stages)
    if not 0 <= number < len(names):
        told = ", ".join(f"{place} {name}" for place, name in enumerate(names))
        raise UsageError(f"stage {number}: this network has {len(names)} stages: {told}")
    chosen = {"stage": names[number : number + 1], "up_to": names[: number + 1], "from": names[number:]}[part]
    return {name: list(stages[name]) for name in chosen}


def _weight_layers(model: nn.Module) -> list[str]:
    return [name for name, module in model.named_modules() if isinstance(module, WEIGHT_LAYERS)]


def _head_of(model: nn.Module) -> str | None:
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    return linear[-1] if linear else None


def _outermost_family(model: nn.Module) -> list[str]:
    """Return the names of the stages in the order of the network; none where no parts look like stages."""
    families: list[list[str]] = []
    for parent, module in model.named_modules():
        by_stem: dict[str, list[str]] = {}
        for name, child in module.named_children():
            if name[-1].isdigit() and len(_weight_layers(child)) >= LAYERS_OF_A_STAGE:
                by_stem.setdefault(name.rstrip("0123456789"), []).append(f"{parent}.{name}".lstrip("."))
        families += [family for family in by_stem.values() if len(family) > 1]
    if not families:
        return []
    return min(families, key=lambda family: (family[0].count("."), -_size(model, family)))


def _size(model: nn.Module, family: Sequence[str]) -> int:
    return sum(value.numel() for name in family for value in model.get_submodule(name).parameters())


def _is_inside(parameter: str, module: str) -> bool:
    return module == "" or parameter.startswith(f"{module}.")
