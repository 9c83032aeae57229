"""Our own CIFAR-10-C and CIFAR-100-C: every image of a dataset, at five severities, in the official layout."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from driftlaw import __version__
from driftlaw.corruptions import corrupt, list_corruptions
from driftlaw.datasets import ArchiveWriter, ImageDataset
from driftlaw.errors import unknown

Progress = Callable[[str, int, int], None]
"""Called with a corruption, how many of its images are made, and how many there will be."""

_PIXELS_A_PIECE = 1 << 21


def make_archive(
    dataset_source: ImageDataset,
    folder: str | os.PathLike[str],
    *,
    names: Sequence[str] | None = None,
    seed: int = 0,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> list[str]:
    """Write ``<corruption>.npy`` for each corruption, and ``labels.npy``; what an earlier call finished is skipped.

    Args:
        dataset_source: the clean images.
        folder: where the files go; a folder that holds an archive made otherwise is refused.
        names: the corruptions; the fifteen of the benchmark by default.
        seed: image i at a severity gets the same corruption for the same seed, whatever else is made.
        device: where the corruptions are computed.
        progress: told how far it has come.

    Returns:
        The corruptions that were made by this call.
    """
    names = list(list_corruptions("benchmark") if names is None else names)
    _refuse_unknown(names)
    count = len(dataset_source)
    recipe = {"dataset": dataset_source.facts(), "seed": seed, "driftlaw": __version__}
    writer = ArchiveWriter(folder, count, dataset_source.labels, num_classes=dataset_source.num_classes, recipe=recipe)
    told = progress or (lambda name, done, total: None)
    return [
        name for name in names if writer.write(name, _pieces(dataset_source, name, seed, torch.device(device), told))
    ]


def _pieces(
    source: ImageDataset, name: str, seed: int, device: torch.device, progress: Progress
) -> Iterator[np.ndarray]:
    height, width = source.image_shape
    step = max(1, _PIXELS_A_PIECE // (height * width))
    done, total = 0, 5 * len(source)
    for severity in range(1, 6):
        for start in range(0, len(source), step):
            indices = np.arange(start, min(start + step, len(source)))
            yield _corrupted(source, indices, name, severity, seed, device)
            done += len(indices)
            progress(name, done, total)


def _corrupted(
    source: ImageDataset, indices: np.ndarray, name: str, severity: int, seed: int, device: torch.device
) -> np.ndarray:
    images = torch.from_numpy(source.images(indices)).to(device).permute(0, 3, 1, 2)
    bad = corrupt(images, name, severity, seed=seed, indices=torch.from_numpy(indices))
    return bad.permute(0, 2, 3, 1).contiguous().cpu().numpy()


def _refuse_unknown(names: Sequence[str]) -> None:
    valid = list(list_corruptions("all"))
    for name in names:
        if name not in valid:
            raise unknown("corruption", name, valid)
