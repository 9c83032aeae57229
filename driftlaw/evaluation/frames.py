"""Frames of a segmentation run: a small image with its predicted and true label map, as text for a batch line."""

import io
from base64 import b64encode

import numpy as np
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from driftlaw.datasets.label_maps import NO_CLASS
from driftlaw.errors import UsageError
from driftlaw.evaluation.predictions import IGNORE_INDEX
from driftlaw.records.jsonl import Line

LONGEST_SIDE = 240  # pixels
MAX_FRAMES = 20  # per run


def encode_frame(image: Tensor, logits: Tensor, labels: Tensor, ignore_index: int = IGNORE_INDEX) -> Line:
    """Return a frame as base64 text: ``input`` is a JPEG file, ``prediction`` and ``truth`` are PNG files.

    A frame with a longer side over 240 pixels is reduced. The PNG files have one class index per pixel. Pixels without
    a class in the truth, and predictions from logits that are not finite, are 255.

    Args:
        image: (channels, h, w) in [0, 1]. Of four or more channels the first three are used, of two the first.
        logits: (classes, h, w). Logits of a lower resolution than the label map are enlarged.
        labels: label map (h, w).
        ignore_index: label of pixels without a class, besides negative labels.

    Raises:
        UsageError: there are more than 255 classes.
    """
    if len(logits) > NO_CLASS:
        raise UsageError(f"The metric 'frames' stores up to 255 classes, but the model has {len(logits)}. Omit it.")
    if logits.shape[-2:] != labels.shape[-2:]:
        logits = F.interpolate(logits[None].float(), labels.shape, mode="bilinear", align_corners=False)[0]
    channels = image[:3] if len(image) > 2 else image[:1].expand(3, -1, -1)
    pixels = channels.float().nan_to_num().mul(255).round().clamp(0, 255).byte().movedim(0, -1)
    picture = Image.fromarray(pixels.cpu().numpy())
    picture.thumbnail((LONGEST_SIDE, LONGEST_SIDE), Image.Resampling.LANCZOS)
    maps = {
        "prediction": logits.argmax(0).masked_fill(~logits.amax(0).isfinite(), NO_CLASS),
        "truth": labels.masked_fill((labels == ignore_index) | (labels < 0), NO_CLASS),
    }
    images = {name: Image.fromarray(values.cpu().numpy().astype(np.uint8)) for name, values in maps.items()}
    reduced = {name: each.resize(picture.size, Image.Resampling.NEAREST) for name, each in images.items()}
    return {"input": _encode(picture, "JPEG"), **{name: _encode(each, "PNG") for name, each in reduced.items()}}


def _encode(image: Image.Image, file_format: str) -> str:
    image.save(file := io.BytesIO(), file_format, optimize=True)
    return b64encode(file.getvalue()).decode()
