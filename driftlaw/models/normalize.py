"""Input normalisation as the first layer of a network, so that images are in [0, 1] everywhere else."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from driftlaw.errors import collected, unknown

NORMALISATIONS: dict[str, dict[str, Any]] = {
    "none": {"mean": [0.0] * 3, "std": [1.0] * 3},
    # AugMix's networks for CIFAR
    "half": {"mean": [0.5] * 3, "std": [0.5] * 3},
    # TTT++'s networks for CIFAR-10 and CIFAR-100
    "cifar10": {"mean": [0.4914, 0.4822, 0.4465], "std": [0.2023, 0.1994, 0.201]},
    # torchvision's ImageNet networks
    "imagenet": {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]},
    # ImageNet networks that came from Caffe, Keras' first ResNet-50 among them
    "caffe": {"mean": [103.939, 116.779, 123.68], "std": [1.0] * 3, "scale": 255.0, "order": "bgr"},
}
"""Normalisations that go by a name."""


class Normalize(nn.Module):
    """Returns (scale · x − mean)/std a channel; the numbers belong to the weights and travel in their metadata.

    Args:
        mean: a number a channel, in the network's own scale and channel order.
        std: likewise.
        scale: the value of white: 1, or 255 for networks that were trained on bytes.
        order: the channel order that the network was trained on; images given to us are always RGB.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        mean: Sequence[float] = (0.0, 0.0, 0.0),
        std: Sequence[float] = (1.0, 1.0, 1.0),
        *,
        scale: float = 1.0,
        order: Literal["rgb", "bgr"] = "rgb",
    ) -> None:
        super().__init__()
        if order not in ("rgb", "bgr"):
            raise unknown("channel order", order, ["rgb", "bgr"])
        self.scale = float(scale)
        self.order = order
        # Beside the buffers, so that a network on the meta device knows its numbers too.
        self._numbers = {"mean": _shortest(mean), "std": _shortest(std)}
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Normalize images (n, c, h, w) in [0, 1], RGB."""
        if self.order == "bgr":
            images = images.flip(1)
        if self.scale != 1.0:
            images = images * self.scale
        return (images - self.mean) / self.std

    def as_lists(self) -> dict[str, Any]:
        """Return the numbers as plain data, as short as they can be without losing a bit."""
        found: dict[str, Any] = {key: list(numbers) for key, numbers in self._numbers.items()}
        if self.scale != 1.0:
            found["scale"] = self.scale
        if self.order != "rgb":
            found["order"] = self.order
        return found

    def extra_repr(self) -> str:
        """Return the numbers for ``print(model)``."""
        return ", ".join(f"{key}={value}" for key, value in self.as_lists().items())


def make_normalise(asked: str | Mapping[str, Any] | None) -> Normalize:
    """Return the layer of a name of ``NORMALISATIONS`` or of the numbers themselves; ``None`` changes nothing.

    >>> make_normalise("half").as_lists()
    {'mean': [0.5, 0.5, 0.5], 'std': [0.5, 0.5, 0.5]}
    """
    if isinstance(asked, str):
        if asked not in NORMALISATIONS:
            raise unknown("normalisation", asked, list(NORMALISATIONS))
        asked = NORMALISATIONS[asked]
    numbers = dict(asked or {})
    problems = _problems(numbers)
    if problems:
        raise collected(f"normalise={numbers} cannot be used:", problems)
    return Normalize(**numbers)


def same_normalisation(one: Normalize, two: Normalize) -> bool:
    """Tell whether two layers do the same thing; numbers that were printed with five digits count as equal."""
    own, other = one.as_lists(), two.as_lists()
    return (one.scale, one.order) == (two.scale, two.order) and all(
        len(own[key]) == len(other[key])
        and all(math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-4) for a, b in zip(own[key], other[key], strict=True))
        for key in ("mean", "std")
    )


def told(layer: Normalize) -> str:
    """Return a layer in a few words: the name of its numbers where they have one, and the numbers."""
    names = [name for name, numbers in NORMALISATIONS.items() if same_normalisation(layer, Normalize(**numbers))]
    numbers = ", ".join(f"{key} {value}" for key, value in layer.as_lists().items())
    return f"«{names[0]}» ({numbers})" if names else numbers


def _problems(numbers: Mapping[str, Any]) -> list[str]:
    known = ("mean", "std", "scale", "order")
    found = [f"unknown key «{key}»: expected {', '.join(known)}" for key in numbers if key not in known]
    for key in ("mean", "std"):
        value = numbers.get(key, [0.0])
        if not isinstance(value, Sequence | Tensor) or isinstance(value, str) or len(value) not in (1, 3):
            found.append(f"{key} is {value!r}: expected three numbers, one a channel")
        elif key == "std" and key in numbers and not all(float(number) > 0 for number in value):
            found.append(f"std is {value!r}: expected numbers above 0")
    return found


def _shortest(numbers: Sequence[float]) -> list[float]:
    return [float(str(number)) for number in torch.tensor(numbers, device="cpu").flatten().numpy()]
