"""Registry of corruptions: names and the parameters of the five severities, as plain data without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from driftlaw.errors import UsageError, unknown_name

Kind = Literal["benchmark", "held_out"]
Parameters = tuple[float, ...]

MAX_SMALL_SIDE = 64
SEVERITIES = (1, 2, 3, 4, 5)


@dataclass(frozen=True)
class Corruption:
    """Metadata of one corruption.

    Attributes:
        name: identifier, such as ``gaussian_noise``.
        title: name in tables and figures.
        kind: ``benchmark`` for the fifteen that are reported, ``held_out`` for the four that settings are tuned on.
        random: whether the result depends on the seed.
        parameter_names: names of the parameters, in their order.
        small: parameters of severities 1 to 5 for small images (CIFAR-C).
        large: parameters of severities 1 to 5 for large images (ImageNet-C).
    """

    name: str
    title: str
    kind: Kind
    random: bool
    parameter_names: tuple[str, ...]
    small: tuple[Parameters, ...]
    large: tuple[Parameters, ...]

    def parameters(self, severity: int, height: int, width: int) -> Parameters:
        """Return the parameters of a severity for images of this size."""
        return (self.large if is_large(height, width) else self.small)[severity - 1]


def is_large(height: int, width: int) -> bool:
    """Return True if images of this size use ImageNet-C's parameters: if a side is longer than 64 pixels.

    64×64 images (TinyImageNet) are small, because ImageNet-C's blurs were made for 224×224 and would remove all detail.
    """
    return max(height, width) > MAX_SMALL_SIDE


def _single(*values: float) -> tuple[Parameters, ...]:
    return tuple((value,) for value in values)


def _scaled(side: int, *rows: Parameters) -> tuple[Parameters, ...]:
    return tuple(tuple(side * value for value in row) for row in rows)


_ELASTIC_SMALL = _scaled(32, (0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03))
# 244, not 224: the original's constant.
_ELASTIC_LARGE = _scaled(244, (2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02))
_SNOW_PARAMETERS = ("mean", "deviation", "zoom", "threshold", "blur radius", "blur deviation", "image weight")
_SPATTER_PARAMETERS = ("mean", "deviation", "smoothing", "threshold", "strength or mud smoothing", "mud")

CORRUPTIONS: tuple[Corruption, ...] = (
    Corruption("gaussian_noise", "Gaussian noise", "benchmark", True, ("deviation",),
               small=_single(0.04, 0.06, 0.08, 0.09, 0.10), large=_single(0.08, 0.12, 0.18, 0.26, 0.38)),
    Corruption("shot_noise", "Shot noise", "benchmark", True, ("rate",),
               small=_single(500, 250, 100, 75, 50), large=_single(60, 25, 12, 5, 3)),
    Corruption("impulse_noise", "Impulse noise", "benchmark", True, ("fraction",),
               small=_single(0.01, 0.02, 0.03, 0.05, 0.07), large=_single(0.03, 0.06, 0.09, 0.17, 0.27)),
    Corruption("defocus_blur", "Defocus blur", "benchmark", False, ("radius", "alias blur"),
               small=((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
               large=((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5))),
    Corruption("glass_blur", "Glass blur", "benchmark", True, ("deviation", "reach", "rounds"),
               small=((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
               large=((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2))),
    Corruption("motion_blur", "Motion blur", "benchmark", True, ("radius", "deviation"),
               small=((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
               large=((10, 3), (15, 5), (15, 8), (15, 12), (20, 15))),
    # Arguments of numpy.arange: as in the original, rounding decides whether the end is one of the factors.
    Corruption("zoom_blur", "Zoom blur", "benchmark", False, ("end", "step"),
               small=((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
               large=((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03))),
    Corruption("snow", "Snow", "benchmark", True, _SNOW_PARAMETERS,
               small=((0.1, 0.2, 1, 0.6, 8, 3, 0.95), (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
                      (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9), (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
                      (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8)),
               large=((0.1, 0.3, 3, 0.5, 10, 4, 0.8), (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
                      (0.55, 0.3, 4, 0.9, 12, 8, 0.7), (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
                      (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55))),
    Corruption("frost", "Frost", "benchmark", True, ("image weight", "frost weight"),
               small=((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
               large=((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75))),
    Corruption("fog", "Fog", "benchmark", True, ("amount", "decay"),
               small=((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
               large=((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4))),
    Corruption("brightness", "Brightness", "benchmark", False, ("value added",),
               small=_single(0.05, 0.1, 0.15, 0.2, 0.3), large=_single(0.1, 0.2, 0.3, 0.4, 0.5)),
    Corruption("contrast", "Contrast", "benchmark", False, ("factor",),
               small=_single(0.75, 0.5, 0.4, 0.3, 0.15), large=_single(0.4, 0.3, 0.2, 0.1, 0.05)),
    Corruption("elastic_transform", "Elastic transform", "benchmark", True, ("amplitude", "smoothing", "affine reach"),
               small=_ELASTIC_SMALL, large=_ELASTIC_LARGE),
    Corruption("pixelate", "Pixelate", "benchmark", False, ("factor",),
               small=_single(0.95, 0.9, 0.85, 0.75, 0.65), large=_single(0.6, 0.5, 0.4, 0.3, 0.25)),
    Corruption("jpeg_compression", "JPEG compression", "benchmark", False, ("quality",),
               small=_single(80, 65, 58, 50, 40), large=_single(25, 18, 15, 10, 7)),
    Corruption("speckle_noise", "Speckle noise", "held_out", True, ("deviation",),
               small=_single(0.06, 0.1, 0.12, 0.16, 0.2), large=_single(0.15, 0.2, 0.35, 0.45, 0.6)),
    Corruption("gaussian_blur", "Gaussian blur", "held_out", False, ("deviation",),
               small=_single(0.4, 0.6, 0.7, 0.8, 1), large=_single(1, 2, 3, 4, 6)),
    Corruption("spatter", "Spatter", "held_out", True, _SPATTER_PARAMETERS,
               small=((0.62, 0.1, 0.7, 0.7, 0.5, 0), (0.65, 0.1, 0.8, 0.7, 0.5, 0), (0.65, 0.3, 1, 0.69, 0.5, 0),
                      (0.65, 0.1, 0.7, 0.69, 0.6, 1), (0.65, 0.1, 0.5, 0.68, 0.6, 1)),
               large=((0.65, 0.3, 4, 0.69, 0.6, 0), (0.65, 0.3, 3, 0.68, 0.6, 0), (0.65, 0.3, 2, 0.68, 0.5, 0),
                      (0.65, 0.3, 1, 0.65, 1.5, 1), (0.67, 0.4, 1, 0.65, 1.5, 1))),
    Corruption("saturate", "Saturate", "held_out", False, ("factor", "added"),
               small=((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
               large=((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2))),
)  # fmt: skip

_BY_NAME = {corruption.name: corruption for corruption in CORRUPTIONS}


def list_corruptions(kind: Literal["benchmark", "held_out", "all"] = "benchmark") -> list[str]:
    """Return the names of the corruptions, in the benchmark's order.

    Args:
        kind: ``benchmark`` (fifteen), ``held_out`` (four) or ``all``.

    >>> list_corruptions("held_out")
    ['speckle_noise', 'gaussian_blur', 'spatter', 'saturate']
    """
    if kind not in ("benchmark", "held_out", "all"):
        raise unknown_name("kind of corruption", str(kind), ["benchmark", "held_out", "all"])
    return [corruption.name for corruption in CORRUPTIONS if kind in (corruption.kind, "all")]


def find_corruption(name: str) -> Corruption:
    """Return the metadata of the corruption called ``name``.

    Raises:
        UsageError: if there is no such corruption. The message suggests the closest name.

    >>> find_corruption("fog").parameters(severity=5, height=32, width=32)
    (1.5, 1.75)
    """
    if not isinstance(name, str):
        raise UsageError(f"Expected the name of a corruption as a string, found {type(name).__name__}.")
    if name not in _BY_NAME:
        raise unknown_name("corruption", name, list(_BY_NAME))
    return _BY_NAME[name]
