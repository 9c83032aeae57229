"""Label maps: the predicted class of every pixel of an image, as arrays, PNG files and overlays."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from PIL import Image

from driftlaw.label_colors import label_map_to_rgb

NO_CLASS = 255
"""Label of pixels whose logits are not finite."""
MAX_CLASSES = 255
COLOR_SHARE = 0.6  # of colors in an overlay


@dataclass(frozen=True)
class LabelMap:
    """Predicted class of every pixel of an image.

    Attributes:
        labels: uint8 (h, w); 255 where logits are not finite.
        shares: share of pixels of each class.
        confidences: mean softmax probability of the pixels of each class; 0 for classes without pixels.
    """

    labels: npt.NDArray[np.uint8]
    shares: npt.NDArray[np.float64]
    confidences: npt.NDArray[np.float64]

    def describe(self, class_names: Sequence[str]) -> list[dict[str, Any]]:
        """Return class, label, share and confidence of every class that occurs, the most frequent first."""
        rows = []
        for index in np.argsort(-self.shares, kind="stable")[: np.count_nonzero(self.shares)].tolist():
            row: dict[str, Any] = {"class": index}
            row |= {"label": class_names[index]} if index < len(class_names) else {}
            share, confidence = (round(float(values[index]), 6) for values in (self.shares, self.confidences))
            rows.append(row | {"share": share, "confidence": confidence})
        return rows

    def image(self, size: tuple[int, int]) -> Image.Image:
        """Return the labels as an 8-bit gray image of this width and height, by nearest neighbors."""
        return Image.fromarray(self.labels).resize(size, Image.Resampling.NEAREST)

    def overlay(self, image: Image.Image) -> Image.Image:
        """Return an image mixed with the colors of its classes. It is gray, so that no other color changes them."""
        colors = Image.fromarray(label_map_to_rgb(np.asarray(self.image(image.size))))
        return Image.blend(image.convert("L").convert("RGB"), colors, COLOR_SHARE)


def predict_label_maps(logits: torch.Tensor, size: Sequence[int]) -> list[LabelMap]:
    """Return the label maps of logits (n, classes, h, w). Logits of another height and width are resized bilinearly."""
    maps = []
    for row in logits.split(1):  # one image at a time: enlarged logits need much memory
        if row.shape[2:] != tuple(size):
            row = F.interpolate(row.float(), list(size), mode="bilinear", align_corners=False)
        values = row[0].float()
        best = values.amax(0)
        classes = values.argmax(0).masked_fill(~best.isfinite(), NO_CLASS)  # -inf is a legal logit of a class
        labels, confidence = classes.to(torch.uint8).cpu().numpy(), (best - values.logsumexp(0)).exp().cpu().numpy()
        counts = np.bincount(labels.ravel(), minlength=256)[: len(values)]
        sums = np.bincount(labels.ravel(), confidence.ravel(), minlength=256)[: len(values)]
        maps.append(LabelMap(labels, counts / labels.size, sums / np.maximum(counts, 1)))
    return maps


def to_png(image: Image.Image) -> bytes:
    """Return an image as a PNG file."""
    file = io.BytesIO()
    image.save(file, format="PNG")
    return file.getvalue()
