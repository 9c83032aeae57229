"""Speed of the corruptions: driftlaw's batched versions compared with the image-by-image reference in one run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from driftlaw.corruptions import corrupt, find_corruption, list_corruptions
from driftlaw.corruptions.registry import SEVERITIES
from driftlaw.hardware import environment
from driftlaw.profiling import timed
from tests.reference import corruptions as reference

ProgressCallback = Callable[[str], None]


@dataclass(frozen=True)
class CorruptionSpeed:
    """Images per second of one corruption, driftlaw's and the reference's."""

    name: str
    images_per_second: float
    plain_images_per_second: float

    @property
    def ratio(self) -> float:
        """Speedup over the reference."""
        return self.images_per_second / self.plain_images_per_second


def compare_corruptions(
    images: Tensor,
    *,
    severity: int,
    device: torch.device,
    reference_images: int = 20,
    on_progress: ProgressCallback = lambda name: None,
) -> dict[str, Any]:
    """Time the 15 corruptions of the benchmark, driftlaw's on all images and the reference on some of them.

    Args:
        images: uint8 images of shape (n, 3, h, w).
        severity: 1 to 5.
        device: device for driftlaw; the reference runs on the CPU.
        reference_images: number of images on which the reference is timed.
        on_progress: called with the name of every finished corruption.

    Returns:
        A record: ``speeds`` with one entry per corruption, ``ratio`` of the times for all fifteen, and the device.
    """
    on_device = images.to(device)
    speeds = []
    for name in list_corruptions("benchmark"):
        speed = _per_second(lambda: corrupt(on_device, name, severity), len(on_device), device)  # noqa: B023
        speeds.append(CorruptionSpeed(name, speed, _reference_speed(images[:reference_images], name, severity)))
        on_progress(name)
    seconds, reference_seconds = (
        sum(1 / getattr(speed, field) for speed in speeds) for field in ("images_per_second", "plain_images_per_second")
    )
    return {
        "bench": "corruptions",
        "severity": severity,
        "images": len(images),
        "plain_images": min(reference_images, len(images)),
        "speeds": [asdict(speed) | {"ratio": speed.ratio} for speed in speeds],
        "ratio": reference_seconds / seconds,
        "seconds_per_image": seconds,
        "plain_seconds_per_image": reference_seconds,
        **environment(device),
    }


def time_full_benchmark(
    images: Tensor, *, device: torch.device, on_progress: ProgressCallback = lambda name: None
) -> dict[str, Any]:
    """Time the corruption of a whole benchmark: 15 corruptions × 5 severities × all images, left on the device.

    Args:
        images: uint8 images of shape (n, 3, h, w); they are copied to the device before timing starts.
        device: device to run on.
        on_progress: called with the name of every finished corruption.
    """
    on_device = images.to(device)
    corrupt(on_device[:1], "gaussian_noise", 1)
    seconds = {}
    for name in list_corruptions("benchmark"):
        with timed(device) as watch:
            for severity in SEVERITIES:
                corrupt(on_device, name, severity)
        seconds[name] = watch.seconds
        on_progress(name)
    return {
        "bench": "corruptions-full",
        "images": len(images) * len(seconds) * len(SEVERITIES),
        "seconds": sum(seconds.values()),
        "seconds_by_corruption": seconds,
        **environment(device),
    }


def load_images(dataset: str, count: int, data_dir: Any = None) -> Tensor:
    """Return the first ``count`` images of a dataset as uint8 (n, 3, h, w); they repeat if the dataset has fewer."""
    from driftlaw.datasets import load_dataset

    images = load_dataset(dataset, data_dir=data_dir)
    return torch.from_numpy(np.ascontiguousarray(images.images(np.arange(count) % len(images)).transpose(0, 3, 1, 2)))


def _reference_speed(images: Tensor, name: str, severity: int) -> float:
    arrays = images.cpu().permute(0, 2, 3, 1).contiguous().numpy()
    parameters = find_corruption(name).parameters(severity, *images.shape[-2:])

    def corrupt_all() -> None:
        for number, array in enumerate(arrays):
            reference.corrupt(array, name, parameters, reference.ImageRng(number))

    return _per_second(corrupt_all, len(arrays), torch.device("cpu"))


def _per_second(work: Callable[[], Any], count: int, device: torch.device, at_least: float = 0.3) -> float:
    """Return items per second of the fastest of several passes, after one warm-up pass."""
    work()
    fastest, spent = float("inf"), 0.0
    while spent < at_least:
        with timed(device) as watch:
            work()
        fastest, spent = min(fastest, watch.seconds), spent + watch.seconds
    return count / fastest
