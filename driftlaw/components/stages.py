"""Stages of any model, from input to output, detected from the names and sizes of its submodules.

Siblings whose names differ only in a trailing number, and that contain at least two layers with weights each, are
stages: ``layer1`` to ``layer4``, ``stages.0`` to ``stages.2``, ``blocks.0`` to ``blocks.11``. The outermost such family
is used; between two at the same depth, the one with more parameters. Parameters before the first stage are the stem.
Parameters after a stage belong to that stage. The head, the last linear layer, belongs to none.
In a model without such a family, every convolution or linear layer is a stage, and the first is the stem.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from torch import nn

from driftlaw.errors import UsageError

STEM = "stem"
WEIGHT_LAYERS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)
MIN_LAYERS_PER_STAGE = 2
MIN_TRANSFORMER_BLOCKS = 8  # ConvNeXt and Swin have four stages


def model_stages(model: nn.Module) -> dict[str, list[str]]:
    """Return the stages in order, the stem first: the name of each, and the names of its parameters.

    >>> layers = [nn.Conv2d(3, 2, 1), nn.BatchNorm2d(2), nn.Conv2d(2, 2, 1), nn.Flatten(), nn.Linear(2, 2)]
    >>> model_stages(nn.Sequential(*layers))
    {'stem': ['0.weight', '0.bias', '1.weight', '1.bias'], '2': ['2.weight', '2.bias']}
    """
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    head = linear[-1] if linear else None
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
    """Return one stage, all stages up to it, or all stages from it.

    Args:
        stages: result of `model_stages`.
        part: ``stage``, ``up_to`` or ``from``; the stage itself is always included.
        number: index of the stage; 0 is the stem.

    Raises:
        UsageError: there is no stage with this index.
    """
    names = list(stages)
    if not 0 <= number < len(names):
        listing = ", ".join(f"{index} ({name})" for index, name in enumerate(names))
        raise UsageError(f"The model has no stage {number}. It has {len(names)} stages: {listing}. Use one of these.")
    selected = {"stage": names[number : number + 1], "up_to": names[: number + 1], "from": names[number:]}[part]
    return {name: list(stages[name]) for name in selected}


def freeze_last_stage(model: nn.Module) -> None:
    """Freeze the parameters near the output that SAR and DeYO do not adapt.

    These are ``layer4`` of a ResNet, or the last quarter of the blocks of a vision transformer (blocks 9 to 11 of 12)
    and what follows them. A transformer is a model with at least eight stages that all contain a LayerNorm. In other
    models, such as Wide ResNets, nothing is frozen, as in the released code of both methods.
    """
    stages = model_stages(model)
    names = [name for name in stages if name != STEM]
    if names and names[-1].split(".")[-1] == "layer4":
        late = names[-1:]
    elif len(names) >= MIN_TRANSFORMER_BLOCKS and all(
        any(isinstance(module, nn.LayerNorm) for module in model.get_submodule(name).modules()) for name in names
    ):
        late = names[-(len(names) // 4) :]
    else:
        late = []
    for parameter in [parameter for name in late for parameter in stages[name]]:
        model.get_parameter(parameter).requires_grad_(False)


def _weight_layers(model: nn.Module) -> list[str]:
    return [name for name, module in model.named_modules() if isinstance(module, WEIGHT_LAYERS)]


def _outermost_family(model: nn.Module) -> list[str]:
    """Return the names of the stages in the order of the model; an empty list if nothing looks like stages."""
    families: list[list[str]] = []
    for parent, module in model.named_modules():
        by_prefix: dict[str, list[str]] = {}
        for name, child in module.named_children():
            if name[-1].isdigit() and len(_weight_layers(child)) >= MIN_LAYERS_PER_STAGE:
                by_prefix.setdefault(name.rstrip("0123456789"), []).append(f"{parent}.{name}".lstrip("."))
        families += [family for family in by_prefix.values() if len(family) > 1]

    def depth_and_size(family: list[str]) -> tuple[int, int]:
        size = sum(value.numel() for name in family for value in model.get_submodule(name).parameters())
        return family[0].count("."), -size

    return min(families, key=depth_and_size, default=[])


def _is_inside(parameter: str, module: str) -> bool:
    return module == "" or parameter.startswith(f"{module}.")
