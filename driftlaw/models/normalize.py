"""Input normalisation as the first layer of a model, so that images are in [0, 1] everywhere else."""

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from driftlaw.errors import UsageError, combined_error, unknown_name
from driftlaw.paths import PACKAGE

Normalization = str | Mapping[str, Any]
"""A name in ``NORMALIZATIONS``, or the numbers themselves."""

NORMALIZATIONS: dict[str, dict[str, Any]] = tomllib.loads(
    (PACKAGE / "models" / "normalizations.toml").read_text(encoding="utf-8")
)
"""Named normalisations."""

INPUT_BUFFERS = ("_input_mean", "_input_std")
"""Names of the buffers that ``normalize_inputs`` adds to a model."""


class Normalize(nn.Module):
    """Input layer: (scale · x − mean) / std per channel. Its numbers are stored in the metadata of the weights.

    >>> Normalize(mean=[0.5] * 3, std=[0.5] * 3)(torch.ones(1, 3, 2, 2)).unique()
    tensor([1.])

    Args:
        mean: One number per channel, in the model's scale and channel order.
        std: One number per channel.
        scale: Value of white: 1, or 255 for models trained on bytes.
        order: Channel order that the model was trained with. Input images are always RGB.
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
            raise unknown_name("channel order", str(order), ["rgb", "bgr"])
        self.scale = float(scale)
        self.order = order
        # Stored beside the buffers, so that a model on the meta device has them too.
        dtype = torch.get_default_dtype()
        self._numbers = {
            key: [float(str(number)) for number in torch.tensor(given, dtype=dtype, device="cpu").numpy().flatten()]
            for key, given in (("mean", mean), ("std", std))
        }
        self.register_buffer("mean", torch.tensor(mean, dtype=dtype).view(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std, dtype=dtype).view(1, -1, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Normalize RGB images (n, c, h, w) in [0, 1]."""
        if self.order == "bgr":
            images = images.flip(1)
        if self.scale != 1.0:
            images = images * self.scale
        return (images - self.mean) / self.std

    def as_lists(self) -> dict[str, Any]:
        """Return the numbers as JSON data, with the fewest digits that keep every bit."""
        numbers: dict[str, Any] = {key: list(values) for key, values in self._numbers.items()}
        if self.scale != 1.0:
            numbers["scale"] = self.scale
        if self.order != "rgb":
            numbers["order"] = self.order
        return numbers

    def describe(self) -> str:
        """Return the name of the normalisation, if it has one, and its numbers."""
        names = [name for name, numbers in NORMALIZATIONS.items() if same_normalization(self, Normalize(**numbers))]
        numbers = self.extra_repr()
        return f"'{names[0]}' ({numbers})" if names else numbers

    def extra_repr(self) -> str:
        """Return the numbers for ``print(model)``."""
        return ", ".join(f"{key}={value}" for key, value in self.as_lists().items())


@dataclass(frozen=True)
class NormalizationOrigin:
    """Normalisation that belongs to weights, and where it is stated."""

    normalize: Normalization
    stated_in: str


def make_normalize(normalize: Normalization | None) -> Normalize:
    """Return the layer for a name in ``NORMALIZATIONS`` or for numbers; None gives the identity.

    >>> make_normalize("half").as_lists()
    {'mean': [0.5, 0.5, 0.5], 'std': [0.5, 0.5, 0.5]}
    """
    if isinstance(normalize, str):
        if normalize not in NORMALIZATIONS:
            raise unknown_name("normalisation", normalize, list(NORMALIZATIONS))
        normalize = NORMALIZATIONS[normalize]
    if not isinstance(normalize, Mapping | None):
        raise UsageError(f"The normalisation is {normalize!r}. Expected a name, or mean and std.")
    numbers = dict(normalize or {})
    known = ("mean", "std", "scale", "order")
    problems = [f"unknown key '{key}', expected {', '.join(known)}" for key in numbers if key not in known]
    for key in ("mean", "std"):
        value = numbers.get(key, [1.0])
        try:
            vector = torch.as_tensor(value, dtype=torch.float32, device="cpu")
        except (TypeError, ValueError, RuntimeError, OverflowError):  # text, or lists of different lengths
            vector = torch.empty(0, device="cpu")
        if vector.shape not in ((1,), (3,)) or not vector.isfinite().all():
            problems.append(f"{key} is {value!r}, expected three numbers, one per channel")
        elif key == "std" and not (vector > 0).all():
            problems.append(f"std is {value!r}, expected numbers above 0")
    scale = numbers.get("scale", 1.0)
    if not isinstance(scale, int | float) or not 0 < scale < math.inf:
        problems.append(f"scale is {scale!r}, expected a number above 0")
    if problems:
        raise combined_error(f"normalize={numbers} is invalid:", problems)
    return Normalize(**numbers)


def read_mean_std(
    mean: str | Sequence[float] | None, std: str | Sequence[float] | None
) -> tuple[list[float], list[float]] | None:
    """Return mean and standard deviation as two lists of the same length; None if neither is given.

    >>> read_mean_std([0.5], [0.2, 0.25, 0.2])
    ([0.5, 0.5, 0.5], [0.2, 0.25, 0.2])

    Args:
        mean: One number per channel, one for all, or a name in ``NORMALIZATIONS``, which states std as well.
        std: One number per channel, or one for all.
    """
    if mean is None and std is None:
        return None
    layer = make_normalize(mean) if isinstance(mean, str) else Normalize()
    if layer.order != "rgb":
        raise UsageError(f"The normalisation '{mean}' is for BGR images. Make it the first layer of the model.")
    if isinstance(mean, str) and std in (None, mean):
        numbers = layer.as_lists()
        mean, std = ([value / layer.scale for value in numbers[key]] for key in ("mean", "std"))
    if mean is None or std is None or isinstance(mean, str) or isinstance(std, str):
        raise UsageError(f"Found mean={mean} and std={std}. Pass both as numbers, or only mean, as a name.")
    channels = max(len(mean), len(std))
    if not {len(mean), len(std)} <= {1, channels} or channels == 0:
        raise UsageError(f"mean has {len(mean)} numbers and std {len(std)}. Pass one number per channel.")
    if not all(value > 0 for value in std):
        raise UsageError(f"std is {list(std)}. Expected numbers above 0.")
    one, two = (list(values) * (channels // len(values)) for values in (mean, std))
    return one, two


def normalize_inputs(model: nn.Module, mean: Sequence[float], std: Sequence[float]) -> None:
    """Make a model normalise its images itself, in place: (x − mean) / std per channel, before all other hooks.

    It is a forward pre-hook with two buffers that are not saved. Names of parameters and the state dict stay the same.
    """
    like = next((value for value in model.parameters() if value.is_floating_point()), torch.empty(0))
    for name, numbers in zip(INPUT_BUFFERS, (mean, std), strict=True):
        model.register_buffer(
            name, torch.tensor(numbers, dtype=torch.float64).to(like).view(-1, 1, 1), persistent=False
        )
    model.register_forward_pre_hook(_normalize, prepend=True)


def remove_input_normalization(model: nn.Module) -> nn.Module:
    """Undo ``normalize_inputs`` for a model and its parts, in place; returns the model."""
    for module in model.modules():
        for key in [key for key, hook in module._forward_pre_hooks.items() if hook is _normalize]:
            del module._forward_pre_hooks[key]
            for name in INPUT_BUFFERS:
                delattr(module, name)
    return model


def _normalize(model: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    mean, std = (getattr(model, name) for name in INPUT_BUFFERS)
    return ((arguments[0] - mean) / std, *arguments[1:])


def same_normalization(one: Normalize, two: Normalize) -> bool:
    """Return True if two layers compute the same; numbers are compared to about five digits."""
    left, right = one.as_lists(), two.as_lists()
    return (one.scale, one.order) == (two.scale, two.order) and all(
        len(left[key]) == len(right[key])
        and all(math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-4) for a, b in zip(left[key], right[key], strict=True))
        for key in ("mean", "std")
    )


def choose_normalization(
    stated: NormalizationOrigin | None, requested: Normalization | None, default: Normalization | None, where: str
) -> Normalization:
    """Return the normalisation stated by the weights, else the requested one, else the default of their architecture.

    Raises:
        UsageError: The requested normalisation differs from the stated one, or nothing is known.
    """
    if stated is not None and requested is not None:
        layer, other = make_normalize(stated.normalize), make_normalize(requested)
        if not same_normalization(layer, other):
            raise UsageError(
                f"{where} was trained with the normalisation {layer.describe()}, as stated in {stated.stated_in}. "
                f"Requested was {other.describe()}. Omit normalize, or use other weights."
            )
    chosen = stated.normalize if stated is not None else requested if requested is not None else default
    if chosen is None:
        raise UsageError(
            f"{where} does not state its input normalisation, and models of this architecture differ. Pass normalize=, "
            f"a name ({', '.join(NORMALIZATIONS)}) or mean and std."
        )
    return chosen
