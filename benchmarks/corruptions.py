"""How fast images are corrupted: ours beside the plain, image-by-image definition, in one run."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from driftlaw.corruptions import corrupt, find_corruption, list_corruptions
from driftlaw.corruptions.registry import SEVERITIES
from driftlaw.errors import UsageError
from driftlaw.hardware import environment
from driftlaw.paths import PACKAGE
from driftlaw.profiling import timed

REFERENCE = PACKAGE.parent / "tests" / "reference" / "corruptions.py"
Told = Callable[[str], None]


@dataclass(frozen=True)
class Speed:
    """Images a second of one corruption, ours and the plain version's."""

    name: str
    images_per_second: float
    plain_images_per_second: float

    @property
    def ratio(self) -> float:
        """How many times faster ours is."""
        return self.images_per_second / self.plain_images_per_second


def compare(
    images: Tensor, *, severity: int, device: torch.device, plain_images: int = 20, told: Told = lambda name: None
) -> dict[str, Any]:
    """Time the fifteen corruptions of the benchmark, ours on all images and the plain version on some of them.

    Args:
        images: uint8 (n, 3, h, w).
        severity: 1 to 5.
        device: where ours runs; the plain version runs on the CPU.
        plain_images: on how many of the images the plain version is timed.
        told: is handed the name of every corruption that is done.

    Returns:
        Plain data: ``speeds`` with one entry a corruption, ``ratio`` of the time both need for all fifteen, and where
        it was measured.
    """
    plain = load_reference()
    here = images.to(device)
    speeds = []
    for name in list_corruptions("benchmark"):
        ours = _per_second(lambda: corrupt(here, name, severity), len(here), device)  # noqa: B023
        speeds.append(Speed(name, ours, _plain_speed(plain, images[:plain_images], name, severity)))
        told(name)
    seconds, plain_seconds = (
        sum(1 / getattr(speed, field) for speed in speeds) for field in ("images_per_second", "plain_images_per_second")
    )
    return {
        "bench": "corruptions",
        "severity": severity,
        "images": len(images),
        "plain_images": min(plain_images, len(images)),
        "speeds": [asdict(speed) | {"ratio": speed.ratio} for speed in speeds],
        "ratio": plain_seconds / seconds,
        "seconds_per_image": seconds,
        "plain_seconds_per_image": plain_seconds,
        **environment(device),
    }


def make_all(images: Tensor, *, device: torch.device, told: Told = lambda name: None) -> dict[str, Any]:
    """Time the making of a whole archive, fifteen corruptions × five severities × all images, left on the device.

    Args:
        images: uint8 (n, 3, h, w); moved to the device before the clock starts.
        device: where it is made.
        told: is handed the name of every corruption that is done.
    """
    here = images.to(device)
    corrupt(here[:1], "gaussian_noise", 1)
    seconds = {}
    for name in list_corruptions("benchmark"):
        with timed(device) as watch:
            for severity in SEVERITIES:
                corrupt(here, name, severity)
        seconds[name] = watch.seconds
        told(name)
    return {
        "bench": "corruptions-full",
        "images": len(images) * len(seconds) * len(SEVERITIES),
        "seconds": sum(seconds.values()),
        "seconds_by_corruption": seconds,
        **environment(device),
    }


def load_reference() -> ModuleType:
    """Return the plain version, which lives in the tests of a checkout and is not part of a wheel."""
    if not REFERENCE.is_file():
        raise UsageError(
            f"the plain version to compare with is not at {REFERENCE}: run this from a clone of the repository"
        )
    spec = importlib.util.spec_from_file_location("driftlaw_plain_corruptions", REFERENCE)
    assert spec is not None  # a .py file always has a loader
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _plain_speed(plain: ModuleType, images: Tensor, name: str, severity: int) -> float:
    pictures = images.cpu().permute(0, 2, 3, 1).contiguous().numpy()
    numbers = find_corruption(name).parameters(severity, *images.shape[-2:])

    def all_of_them() -> None:
        for number, picture in enumerate(pictures):
            plain.corrupt(picture, name, numbers, plain.Dice(number))

    return _per_second(all_of_them, len(pictures), torch.device("cpu"))


def _per_second(work: Callable[[], Any], count: int, device: torch.device, at_least: float = 0.3) -> float:
    """Return items a second of the fastest of several passes, after one pass that fills the caches."""
    work()
    fastest, spent = float("inf"), 0.0
    while spent < at_least:
        with timed(device) as watch:
            work()
        fastest, spent = min(fastest, watch.seconds), spent + watch.seconds
    return count / fastest
