"""Which corruptions there are and how strong each of their five severities is; plain data, without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from driftlaw.errors import UsageError, unknown

Kind = Literal["benchmark", "held_out"]
Numbers = tuple[float, ...]

LARGEST_SMALL_SIDE = 64
SEVERITIES = (1, 2, 3, 4, 5)


@dataclass(frozen=True)
class Corruption:
    """What is known about one corruption.

    Attributes:
        name: the name it is asked for by.
        title: the name a table or a figure prints.
        kind: ``benchmark`` for the fifteen that are reported, ``held_out`` for the four that settings may be chosen on.
        random: whether two seeds give two results.
        numbers: what the numbers of a severity mean, in their order.
        small: the numbers of severities 1 to 5 for small images (CIFAR-C's).
        large: the numbers of severities 1 to 5 for large images (ImageNet-C's).
    """

    name: str
    title: str
    kind: Kind
    random: bool
    numbers: tuple[str, ...]
    small: tuple[Numbers, ...]
    large: tuple[Numbers, ...]

    def at(self, severity: int, height: int, width: int) -> Numbers:
        """Return the numbers of a severity for images of this size."""
        return (self.large if is_large(height, width) else self.small)[severity - 1]


def is_large(height: int, width: int) -> bool:
    """Tell whether images of this size take ImageNet-C's numbers: those with a side over 64 pixels.

    64×64 images (TinyImageNet) are small: ImageNet-C's blurs, made for 224×224, would leave nothing of them.
    """
    return max(height, width) > LARGEST_SMALL_SIDE


def _singles(*values: float) -> tuple[Numbers, ...]:
    return tuple((value,) for value in values)


def _scaled(side: int, *rows: Numbers) -> tuple[Numbers, ...]:
    return tuple(tuple(side * value for value in row) for row in rows)


_ELASTIC_SMALL = _scaled(32, (0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03))
# 244, not 224: the original's constant.
_ELASTIC_LARGE = _scaled(244, (2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02))
_SNOW_NUMBERS = ("mean", "deviation", "zoom", "threshold", "blur radius", "blur deviation", "image share")
_SPATTER_NUMBERS = ("mean", "deviation", "smoothing", "threshold", "strength or mud smoothing", "mud")

CORRUPTIONS: tuple[Corruption, ...] = (
    Corruption(
        "gaussian_noise", "Gaussian noise", "benchmark", True, ("deviation",),
        small=_singles(0.04, 0.06, 0.08, 0.09, 0.10),
        large=_singles(0.08, 0.12, 0.18, 0.26, 0.38),
    ),
    Corruption(
        "shot_noise", "Shot noise", "benchmark", True, ("rate",),
        small=_singles(500, 250, 100, 75, 50),
        large=_singles(60, 25, 12, 5, 3),
    ),
    Corruption(
        "impulse_noise", "Impulse noise", "benchmark", True, ("share",),
        small=_singles(0.01, 0.02, 0.03, 0.05, 0.07),
        large=_singles(0.03, 0.06, 0.09, 0.17, 0.27),
    ),
    Corruption(
        "defocus_blur", "Defocus blur", "benchmark", False, ("radius", "alias blur"),
        small=((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        large=((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    ),
    Corruption(
        "glass_blur", "Glass blur", "benchmark", True, ("deviation", "reach", "rounds"),
        small=((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
        large=((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    ),
    Corruption(
        "motion_blur", "Motion blur", "benchmark", True, ("radius", "deviation"),
        small=((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
        large=((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    ),
    Corruption(
        # As numpy.arange takes them: rounding decides whether the end itself is among the factors, as in the original.
        "zoom_blur", "Zoom blur", "benchmark", False, ("end", "step"),
        small=((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
        large=((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
    ),
    Corruption(
        "snow", "Snow", "benchmark", True, _SNOW_NUMBERS,
        small=(
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
        large=(
            (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
            (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
            (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
            (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
            (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
        ),
    ),
    Corruption(
        "frost", "Frost", "benchmark", True, ("image share", "frost share"),
        small=((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
        large=((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
    ),
    Corruption(
        "fog", "Fog", "benchmark", True, ("amount", "decay"),
        small=((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
        large=((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
    ),
    Corruption(
        "brightness", "Brightness", "benchmark", False, ("value added",),
        small=_singles(0.05, 0.1, 0.15, 0.2, 0.3),
        large=_singles(0.1, 0.2, 0.3, 0.4, 0.5),
    ),
    Corruption(
        "contrast", "Contrast", "benchmark", False, ("factor",),
        small=_singles(0.75, 0.5, 0.4, 0.3, 0.15),
        large=_singles(0.4, 0.3, 0.2, 0.1, 0.05),
    ),
    Corruption(
        "elastic_transform", "Elastic transform", "benchmark", True, ("amplitude", "smoothing", "affine reach"),
        small=_ELASTIC_SMALL,
        large=_ELASTIC_LARGE,
    ),
    Corruption(
        "pixelate", "Pixelate", "benchmark", False, ("factor",),
        small=_singles(0.95, 0.9, 0.85, 0.75, 0.65),
        large=_singles(0.6, 0.5, 0.4, 0.3, 0.25),
    ),
    Corruption(
        "jpeg_compression", "JPEG compression", "benchmark", False, ("quality",),
        small=_singles(80, 65, 58, 50, 40),
        large=_singles(25, 18, 15, 10, 7),
    ),
    Corruption(
        "speckle_noise", "Speckle noise", "held_out", True, ("deviation",),
        small=_singles(0.06, 0.1, 0.12, 0.16, 0.2),
        large=_singles(0.15, 0.2, 0.35, 0.45, 0.6),
    ),
    Corruption(
        "gaussian_blur", "Gaussian blur", "held_out", False, ("deviation",),
        small=_singles(0.4, 0.6, 0.7, 0.8, 1),
        large=_singles(1, 2, 3, 4, 6),
    ),
    Corruption(
        "spatter", "Spatter", "held_out", True, _SPATTER_NUMBERS,
        small=(
            (0.62, 0.1, 0.7, 0.7, 0.5, 0),
            (0.65, 0.1, 0.8, 0.7, 0.5, 0),
            (0.65, 0.3, 1, 0.69, 0.5, 0),
            (0.65, 0.1, 0.7, 0.69, 0.6, 1),
            (0.65, 0.1, 0.5, 0.68, 0.6, 1),
        ),
        large=(
            (0.65, 0.3, 4, 0.69, 0.6, 0),
            (0.65, 0.3, 3, 0.68, 0.6, 0),
            (0.65, 0.3, 2, 0.68, 0.5, 0),
            (0.65, 0.3, 1, 0.65, 1.5, 1),
            (0.67, 0.4, 1, 0.65, 1.5, 1),
        ),
    ),
    Corruption(
        "saturate", "Saturate", "held_out", False, ("factor", "added"),
        small=((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
        large=((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
    ),
)  # fmt: skip

_BY_NAME = {corruption.name: corruption for corruption in CORRUPTIONS}


def list_corruptions(kind: Literal["benchmark", "held_out", "all"] = "benchmark") -> list[str]:
    """Return the names of the corruptions, in the benchmark's order.

    Args:
        kind: ``benchmark`` (fifteen), ``held_out`` (four) or ``all``.
    """
    if kind not in ("benchmark", "held_out", "all"):
        raise unknown("kind of corruption", str(kind), ["benchmark", "held_out", "all"])
    return [corruption.name for corruption in CORRUPTIONS if kind in (corruption.kind, "all")]


def find_corruption(name: str) -> Corruption:
    """Return what is known about the corruption of this name.

    Raises:
        UsageError: no corruption has this name; the message offers the nearest.
    """
    if not isinstance(name, str):
        raise UsageError(f"a corruption's name is a string, found {type(name).__name__}")
    if name not in _BY_NAME:
        raise unknown("corruption", name, list(_BY_NAME))
    return _BY_NAME[name]
