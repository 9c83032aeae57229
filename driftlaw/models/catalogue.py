"""Which networks there are, by name: ``wrn_28_10`` is a wide resnet of depth 28 and width 10."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from torch import nn

from driftlaw.errors import unknown
from driftlaw.models.normalise import Normalise
from driftlaw.models.wide_resnet import WideResNet


@dataclass(frozen=True)
class ModelInfo:
    """What is known of a network before it is made."""

    name: str
    title: str
    input_size: int
    paper: str


_WIDE = "Wide residual networks, BMVC 2016"
_MODELS = (
    ModelInfo("wrn_16_1", "WRN-16-1", 32, _WIDE),
    ModelInfo("wrn_16_2", "WRN-16-2", 32, _WIDE),
    ModelInfo("wrn_28_2", "WRN-28-2", 32, _WIDE),
    ModelInfo("wrn_28_10", "WRN-28-10", 32, _WIDE),
    ModelInfo("wrn_40_2", "WRN-40-2", 32, _WIDE),
)


def list_models() -> list[ModelInfo]:
    """Return the networks that the benchmarks use; ``wrn_DEPTH_WIDTH`` of any depth 6n + 4 can be made too."""
    return list(_MODELS)


def build_model(name: str, *, num_classes: int, normalise: dict[str, Any] | None = None) -> nn.Module:
    """Return an untrained network.

    Args:
        name: such as ``wrn_28_10``.
        num_classes: size of the answer.
        normalise: ``mean`` and ``std`` of the input, three numbers each; none by default.
    """
    match = re.fullmatch(r"wrn_(\d+)_(\d+)", name)
    if match is None:
        raise unknown("model", name, [info.name for info in _MODELS])
    depth, width = (int(part) for part in match.groups())
    model = WideResNet(depth, width, num_classes, normalise=Normalise(**normalise) if normalise else None)
    model.info = {"name": name, "num_classes": num_classes, "normalise": model.normalise.as_lists()}
    return model
