"""Sample images of a stream: the same image in each of its domains, for the page of a report."""

import io
import os
from collections.abc import Mapping
from typing import Any

from PIL import Image

from driftlaw.base import Domain
from driftlaw.datasets import ArchiveDataset
from driftlaw.errors import DataError
from driftlaw.streams.make import make_stream
from driftlaw.streams.schedules import CLEAN

LONGEST_SIDE = 80  # pixels


def sample_images(recipe: Mapping[str, Any], *, data_dir: str | os.PathLike[str] | None = None) -> dict[str, bytes]:
    """Return the first image of a stream, clean and in each of its domains, as PNG files of at most 80 × 80 pixels.

    Nothing is downloaded.

    >>> list(sample_images({"dataset": "cifar10-embedded", "corruptions": ["fog", "snow"]}))
    ['clean', 'fog', 'snow']

    Args:
        recipe: The ``recipe()`` of a stream, as in the header of a record. Images are of its highest severity.
        data_dir: Data directory; see ``driftlaw.paths.data_dir``.

    Raises:
        DataError: The dataset is not on this machine, or it is not the one of the recipe.
        UsageError: The recipe is not one of ``make_stream``.
    """
    stream = make_stream(recipe, data_dir=data_dir)
    described = recipe["dataset"] if isinstance(recipe["dataset"], Mapping) else {}
    if described.get("sha256") not in (None, stream.dataset.metadata()["sha256"]):
        raise DataError(f"The dataset {stream.dataset.name} on this machine is not the one of the recipe.")
    clean = [] if isinstance(stream.dataset, ArchiveDataset) else [CLEAN]
    images = {}
    for name in dict.fromkeys([*clean, *stream.settings.corruptions]):
        domain = Domain(name, 0 if name == CLEAN else stream.settings.severity)
        image = Image.fromarray(stream.cache.get(domain, stream.indices[:1])[0].permute(1, 2, 0).numpy())
        image.thumbnail((LONGEST_SIDE, LONGEST_SIDE), Image.Resampling.LANCZOS)
        image.save(file := io.BytesIO(), "PNG", optimize=True)
        images[name] = file.getvalue()
    return images
