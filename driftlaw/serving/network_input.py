"""Images that a network receives: their size, and how images of other sizes are made to fit."""

from contextlib import suppress
from typing import NamedTuple

import torch
from PIL import Image, ImageOps
from torch import nn

from driftlaw.base import Adapter
from driftlaw.datasets import dataset_info
from driftlaw.datasets.image_folder import CROP, resize_and_crop
from driftlaw.errors import UsageError
from driftlaw.export.calibration import input_size
from driftlaw.serving.label_maps import MAX_CLASSES


class NetworkInput(NamedTuple):
    """Size of the images that a network receives, and whether it predicts a class per pixel."""

    height: int
    width: int
    is_dense: bool = False

    def fit(self, image: Image.Image) -> Image.Image:
        """Return an RGB image of this size.

        For a class per pixel, other sizes are resized. For one class, they are resized and cropped to the center; for
        224×224 pixels the shorter side becomes 256 first, as for ``driftlaw run --data``.
        """
        size = self.width, self.height
        if image.size == size:
            return image
        if self.is_dense:
            return image.resize(size, Image.Resampling.BILINEAR)
        return resize_and_crop(image) if size == (CROP, CROP) else ImageOps.fit(image, size, Image.Resampling.BILINEAR)


def upright_rgb(image: Image.Image) -> Image.Image:
    """Return an image as RGB, rotated as its EXIF data says."""
    return ImageOps.exif_transpose(image).convert("RGB")


def choose_input(adapter: Adapter, model: nn.Module, size: tuple[int, int] | None) -> NetworkInput:
    """Return the input of a network, after a prediction that shows whether it predicts a class per pixel.

    Args:
        adapter: the adapter that predicts.
        model: its source model, which may state the dataset or the size that it was trained with.
        size: height and width; None: as the model states.

    Raises:
        UsageError: the network predicts a class per pixel, and states no size, or has too many classes.
    """
    square = input_size(model)
    device = next((value.device for value in adapter.model.parameters()), None)
    logits = adapter.predict(torch.zeros(2, 3, *(size or (square, square)), device=device))
    if logits.ndim == 2:
        return NetworkInput(*(size or (square, square)))
    if logits.shape[1] > MAX_CLASSES:
        raise UsageError(f"The network has {logits.shape[1]} classes. Label maps have at most {MAX_CLASSES}.")
    with suppress(UsageError):  # no known dataset
        size = size or dataset_info(str(getattr(model, "info", {}).get("dataset"))).image_size
    if size is None:
        raise UsageError(
            "The network predicts a class per pixel and does not state the size of its images. Pass their height and "
            "width, such as --image-size 360x480."
        )
    return NetworkInput(*size, is_dense=True)
