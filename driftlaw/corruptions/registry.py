"""Registry of corruptions: names and the parameters of the five severities (``registry.toml``), without torch."""

import tomllib
from dataclasses import dataclass
from typing import Literal

from driftlaw.errors import UsageError, unknown_name
from driftlaw.paths import PACKAGE

Kind = Literal["benchmark", "held_out"]
Encoding = Literal["auto", "jpeg85", "none"]
ENCODINGS: tuple[Encoding, ...] = ("auto", "jpeg85", "none")
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


def resolve_encoding(encoding: Encoding, height: int, width: int) -> Literal["jpeg85", "none"]:
    """Return how corrupted images of this size are encoded. ``auto`` follows the published files.

    The files of ImageNet-C are JPEG of quality 85. Those of CIFAR-C are not compressed.
    """
    if encoding == "auto":
        return "jpeg85" if is_large(height, width) else "none"
    return encoding


def _read_corruptions() -> tuple[Corruption, ...]:
    entries = tomllib.loads((PACKAGE / "corruptions" / "registry.toml").read_text(encoding="utf-8"))["corruption"]
    for entry in entries:
        entry["parameter_names"] = tuple(entry["parameter_names"])
        entry |= {size: tuple(map(tuple, entry[size])) for size in ("small", "large")}
    return tuple(Corruption(**entry) for entry in entries)


CORRUPTIONS = _read_corruptions()
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


def find_corruptions(name: str) -> list[Corruption]:
    """Return the corruptions of a combination such as ``spatter+gaussian_blur``, in order.

    Raises:
        UsageError: as `find_corruption`.
    """
    return [find_corruption(part) for part in (name.split("+") if isinstance(name, str) else [name])]
