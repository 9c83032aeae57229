"""Choice of the images from which BatchNorm statistics of an exported model are computed."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor, nn

from driftlaw.base import Adapter
from driftlaw.components.batch_norm import uses_batch_stats
from driftlaw.datasets import list_datasets, load_dataset
from driftlaw.datasets.image_files import SUFFIXES, read_images
from driftlaw.errors import DataError, unknown_name
from driftlaw.execution.batch_statistics import batch_norm_layers
from driftlaw.models import list_models
from driftlaw.settings import list_presets
from driftlaw.streams import make_stream

RANDOM_IMAGES = 8
"""Number of random images on which file and model are compared if no calibration images are given."""


@dataclass(frozen=True)
class Calibration:
    """Images for the statistics of an exported model.

    Attributes:
        images: (n, 3, h, w) in [0, 1].
        statistics: which statistics to use with them, as for ``export_adapter``.
        origin: where the images come from; None if they are random.
        note: what the user should know about the choice; may be empty.
    """

    images: Tensor
    statistics: Literal["calibration", "stored"]
    origin: str | None
    note: str = ""


def choose_calibration(
    model: nn.Module,
    adapter: Adapter | None,
    name: str | None,
    count: int,
    *,
    device: torch.device,
    data_dir: Path | None = None,
) -> Calibration:
    """Return calibration images: those of ``name``, else those in the adapter's window, else random ones.

    Args:
        model: the source model, which determines the image size.
        adapter: the adapter to export; None to export the model.
        name: a dataset (random images), a preset (the last images of its stream) or a folder. A folder with one
            sub-folder per class is a dataset; of any other folder the newest images are used.
        count: maximum number of images.
        device: where the images are placed.
        data_dir: the data directory.
    """
    own_statistics = adapter is not None and not any(map(uses_batch_stats, batch_norm_layers(adapter.model)))
    if name is not None:
        images = load_images(name, count, input_size(model), device=device, data_dir=data_dir).to(device)
        note = f"The method keeps its own statistics. {name} is only used for the comparison." if own_statistics else ""
        return Calibration(images, "calibration", name, note)
    window = adapter.window if adapter is not None else None
    if window is not None and window.filled:
        note = f"No --calibrate given. Statistics are computed from the last {window.filled} images in the window."
        return Calibration(window.recent.to(device), "calibration", "the adapter's window", note)
    note = "" if own_statistics else "No --calibrate given. BatchNorm layers keep the statistics of training."
    if adapter is not None and note:
        note += " The adapter used others, so images of its stream would give more accurate predictions."
    size = input_size(model)
    images = torch.rand(RANDOM_IMAGES, 3, size, size, generator=torch.Generator().manual_seed(0))
    return Calibration(images.to(device), "stored", None, note)


def load_images(name: str, count: int, size: int, *, device: torch.device, data_dir: Path | None = None) -> Tensor:
    """Return up to ``count`` images (n, 3, h, w) in [0, 1] of a dataset, preset or folder.

    Images of a folder without sub-folders are cropped and resized to ``size``.
    """
    folder, datasets = Path(name), [info.name for info in list_datasets()]
    if name in list_presets() or name.endswith(".toml"):
        stream = make_stream(name, data_dir=data_dir, device=device)
        batches = -(-count // stream.settings.batch_size) + 1  # the last batch may be smaller
        return torch.cat([batch.images for batch in stream.iter_from(max(len(stream) - batches, 0))])[-count:]
    is_dataset = not folder.is_dir() or any(
        child.is_dir() and not child.name.startswith(".") for child in folder.iterdir()
    )
    if is_dataset:
        dataset_name = f"folder:{name}" if folder.is_dir() else name
        if dataset_name not in datasets and not dataset_name.startswith("folder:"):
            raise unknown_name("calibration set", name, [*datasets, *list_presets()])
        dataset = load_dataset(dataset_name, data_dir=data_dir, split="test")
        order = np.random.default_rng(0).permutation(len(dataset))  # datasets are often sorted by class
        pixels = dataset.images(order[:count])
    else:
        files = [path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES and path.name[0] != "."]
        if not files:
            raise DataError(f"{folder} contains no images. Expected files that end in {', '.join(sorted(SUFFIXES))}.")
        newest = sorted(files, key=lambda path: (path.stat().st_mtime_ns, path.name))[-count:]
        pixels = read_images(
            newest, (size, size), lambda image: ImageOps.fit(image, (size, size), Image.Resampling.BILINEAR)
        )
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous().float().div(255)


def input_size(model: nn.Module) -> int:
    """Return the height and width of the images that a model was trained on, by its library or name."""
    info = getattr(model, "info", {})
    name = str(info.get("name", ""))
    known = {entry.name: entry.input_size for entry in list_models()}
    is_small = name.startswith(("wrn_", "resnext_")) or name.endswith("_cifar")
    return int(info.get("input_size") or known.get(name) or (32 if is_small else 224))
