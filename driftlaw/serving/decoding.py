"""Images of a request: PNG and JPEG files, and arrays in JSON, checked before anything reaches a model."""

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from driftlaw.serving.label_maps import LabelMap
from driftlaw.serving.network_input import NetworkInput, upright_rgb
from driftlaw.serving.settings import RequestError, ServerSettings

Array = npt.NDArray[Any]
Size = tuple[int, int]  # width and height, as Pillow has them

TOLERANCE = 1e-3  # how far pixels may be outside of [0, 1], as for an adapter
NONE = {"class": None, "label": "", "confidence": None}  # prediction of an image whose logits are not finite


def decode_file(data: bytes, settings: ServerSettings) -> Image.Image:
    """Return a PNG or JPEG file as an RGB image; raise RequestError if it is damaged or too large."""
    formats = ("PNG", "JPEG")
    try:
        with Image.open(io.BytesIO(data), formats=formats) as image:
            image.verify()  # the checksums of a PNG file, which decoding ignores
        with Image.open(io.BytesIO(data), formats=formats) as image:
            if image.width * image.height > settings.max_pixels:
                raise RequestError(413, f"The image has {image.width}×{image.height} pixels, which is too many.")
            if image.mode.startswith(("I", "F")):
                raise RequestError(415, "The image has more than 8 bits per channel. Send 8 bits, or JSON arrays.")
            return upright_rgb(image)
    except RequestError:
        raise
    except Exception as error:  # Pillow raises many types for damaged files
        raise RequestError(400, f"An image is damaged, or not PNG or JPEG ({type(error).__name__}).") from error


def decode_files(files: Sequence[bytes], size: NetworkInput, settings: ServerSettings) -> tuple[Array, list[Size]]:
    """Return PNG and JPEG files as uint8 (n, 3, h, w), and the width and height that each of them had."""
    check_count(len(files), settings)
    pixels, sizes = [], []
    for data in files:
        image = decode_file(data, settings)
        sizes.append(image.size)
        pixels.append(np.ascontiguousarray(np.asarray(size.fit(image)).transpose(2, 0, 1)))
    return np.stack(pixels), sizes


@dataclass
class SentImages:
    """Images of a request as they were sent, and what the answer must contain beside predictions.

    Attributes:
        wants_png: whether the answer is a PNG file.
        wants_overlay: whether overlays are wanted.
        images: PNG or JPEG files, or arrays (3, h, w); empty if only their sizes are needed.
        sizes: width and height of each image.
    """

    wants_png: bool
    wants_overlay: bool
    images: Sequence[bytes | Array] = ()
    sizes: Sequence[Size] = ()

    def image(self, index: int, settings: ServerSettings) -> Image.Image:
        """Return an image. Files are decoded again, because decoded images of a whole request need much memory."""
        image = self.images[index]
        return decode_file(image, settings) if isinstance(image, bytes) else to_image(image)


def to_image(pixels: Array) -> Image.Image:
    """Return pixels (3, h, w), uint8 or in [0, 1], as an RGB image."""
    values = pixels if pixels.dtype == np.uint8 else (pixels * 255).round().clip(0, 255).astype(np.uint8)
    return Image.fromarray(np.ascontiguousarray(values.transpose(1, 2, 0)))


def parse_json(text: bytes, settings: ServerSettings) -> dict[str, Any]:
    """Return a JSON object; NaN and infinity, which are not JSON, are refused."""
    if len(text) > settings.max_json:
        raise RequestError(413, f"The JSON text has {len(text):,} bytes. At most {settings.max_json:,} are read.")

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    try:
        value = json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError) as error:  # also bytes that are not UTF-8
        raise RequestError(400, f"The body is not JSON: {str(error)[:200] or 'it is nested too deeply'}.") from error
    if not isinstance(value, dict):
        raise RequestError(400, "The body is JSON, but not an object. Expected {…}.")
    return value


def decode_json(text: bytes, size: NetworkInput, settings: ServerSettings) -> Array:
    """Return the images of ``{"images": […], "dtype": "float32"}``: one (3, h, w), or several (n, 3, h, w).

    The dtype is ``float32`` with values in [0, 1], the default, or ``uint8`` with values from 0 to 255.
    """
    body = parse_json(text, settings)
    dtype = body.get("dtype", "float32")
    if "images" not in body or dtype not in ("float32", "uint8"):
        raise RequestError(422, "Expected the keys 'images' and, if it is not 'float32', 'dtype': 'uint8'.")
    return check_images(to_array(body["images"], dtype), size, settings)


def to_array(values: Any, dtype: str) -> Array:
    """Return nested lists of numbers as an array; bytes must be integers from 0 to 255."""
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError, RecursionError) as error:
        raise RequestError(422, "The images are not an array of numbers: some lists differ in length.") from error
    if array.dtype.kind not in ("iu" if dtype == "uint8" else "iuf"):
        raise RequestError(422, f"The images are not an array of numbers of type {dtype}.")
    if dtype == "uint8" and array.size and (array.min() < 0 or array.max() > 255):
        raise RequestError(422, "Images of dtype uint8 have values from 0 to 255, but others were found.")
    return array.astype(dtype)


def check_images(images: Array, size: NetworkInput, settings: ServerSettings) -> Array:
    """Return images as (n, 3, h, w); raise RequestError if their shape or values are unsuitable."""
    found, images = images.shape, images[None] if images.ndim == 3 else images
    if images.ndim != 4 or images.shape[1:] != (3, *size[:2]) or not len(images):
        expected = f"(n, 3, {size.height}, {size.width})"
        raise RequestError(422, f"The images have shape {found}. Expected {expected}, or one image.")
    check_count(len(images), settings)
    if images.dtype != np.uint8:
        low, high = images.min(), images.max()
        if not (low >= -TOLERANCE and high <= 1 + TOLERANCE):  # also NaN
            raise RequestError(422, f"Pixels are from {low:.3g} to {high:.3g}. Expected [0, 1], or dtype uint8.")
    return images


def check_count(count: int, settings: ServerSettings) -> None:
    """Raise RequestError if a request has no images, or too many."""
    if not 1 <= count <= settings.max_images:
        raise RequestError(422, f"The request has {count} images. Expected 1 to {settings.max_images}.")


def describe(outputs: Array | list[LabelMap], class_names: list[str]) -> list[dict[str, Any]]:
    """Return one prediction per row of logits, None where they are not finite, or the classes of each label map."""
    if isinstance(outputs, list):
        return [{"classes": entry.describe(class_names)} for entry in outputs]
    rows: list[dict[str, Any]] = []
    for row in outputs.astype(np.float64):
        index, confidence = int(row.argmax()), float(1 / np.exp(row - row.max()).sum())
        finite = bool(np.isfinite(row).all())
        rows.append({"class": index, "label": class_names[index], "confidence": confidence} if finite else dict(NONE))
    return rows


def header_number(headers: Mapping[str, str], name: str) -> int | None:
    """Return a header that is a number of bytes, or None if it is missing."""
    text = headers.get(name)
    if text is not None and not (text.isascii() and text.isdecimal() and len(text) < 16):
        raise RequestError(400, f"The header {name} is not a number.")
    return None if text is None else int(text)
