"""``GET /v1/status``: what one adapter of the server did recently, as JSON for the live page."""

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from PIL import Image
from pydantic import BaseModel, Field

from driftlaw.serving.label_maps import to_png

SECONDS = 120  # that series cover
MAX_THUMBNAILS = 16
Mode = Literal["adapting", "paused", "source"]


class Series(BaseModel):
    """Lists of equal length with one entry per second, oldest first. None: no batch in that second.

    ``time`` is the start of the second, in seconds since 1970. ``images`` is the throughput in images per second.
    ``entropy`` is the mean over predictions, in nats. ``class_shares`` are the shares of predictions per class, None
    with more than 100 classes. Latencies are from the arrival of a request to its answer, in milliseconds.
    """

    time: list[float]
    images: list[int]
    entropy: list[float | None]
    class_shares: list[list[float] | None]
    latency_p50: list[float | None]
    latency_p99: list[float | None]


@dataclass(frozen=True)
class Event:
    """An action of the guard or the administrator (``pause``, ``resume``, ``reset``, ``rollback``)."""

    time: float
    step: int
    action: str
    reason: str


class ClassShare(BaseModel):
    """A class of a label map: its share of the pixels, and the mean confidence of those pixels."""

    prediction: int = Field(alias="class")
    label: str
    share: float
    confidence: float


class Thumbnail(BaseModel):
    """An image of the last batch (PNG as a data URI) with its prediction; None if the logits were not finite.

    With a class per pixel, the image is mixed with the colors of its classes, which are in ``classes``.
    """

    image: str
    prediction: int | None = None
    label: str = ""
    confidence: float | None = None
    classes: list[ClassShare] = []


class Status(BaseModel):
    """State of the server and of the adapter of one tenant."""

    model: str
    method: str
    classes: int
    class_names: list[str]
    class_colors: list[str]
    """Colors of the classes in overlays, such as ``#0072b2``; empty if the network predicts one class per image."""
    image_size: tuple[int, int]
    """Height and width of the images that the network receives."""
    tenant: str
    """Whose adapter this is; empty without tenants."""
    tenants: list[str]
    mode: Mode
    """``paused``: predictions without updates. ``source``: the guard lets the source model predict."""
    steps: int
    images: int
    uptime: float
    """Seconds since the start of the server."""
    queue: int
    queue_limit: int
    layer_weights: dict[str, float]
    """Layer weights of the last step since a reset, such as LAW's; empty for other methods."""
    guard_counts: dict[str, int]
    """Number of actions of the guard, by name."""
    guard_scale: float | None
    """Factor of all updates, 1 without alarms; None without a guard."""
    can_roll_back: bool
    """Whether there is a snapshot from before the current step."""
    series: Series
    events: list[Event]
    """The last actions, oldest first."""
    last_batch: list[Thumbnail]
    """At most 16 images of the last batch; one, if the network predicts a class per pixel."""


@dataclass(frozen=True)
class BatchInfo:
    """A batch: when it was answered, its images, mean entropy, class shares, and the seconds that each request took."""

    time: float
    images: int
    entropy: float | None
    class_shares: list[float] | None
    latencies: list[float]


def make_series(batches: Sequence[BatchInfo], now: float) -> Series:
    """Return the last two minutes before ``now`` (seconds since 1970), without the running second."""
    end = math.floor(now)
    by_second: dict[int, list[BatchInfo]] = {second: [] for second in range(end - SECONDS, end)}
    for batch in batches:
        by_second.get(math.floor(batch.time), []).append(batch)
    columns: dict[str, list[Any]] = {name: [] for name in Series.model_fields}
    for second, found in by_second.items():
        columns["time"].append(second)
        columns["images"].append(sum(batch.images for batch in found))
        for name in ("entropy", "class_shares"):
            values = [(getattr(batch, name), batch.images) for batch in found if getattr(batch, name) is not None]
            weights = [images for _, images in values]
            mean = np.average([value for value, _ in values], axis=0, weights=weights) if values else None
            columns[name].append(None if mean is None else mean.round(6).tolist())
        latencies = [1000 * latency for batch in found for latency in batch.latencies]
        for share in (50, 99):
            columns[f"latency_p{share}"].append(round(float(np.percentile(latencies, share)), 3) if latencies else None)
    return Series(**columns)


def data_uri(image: Image.Image) -> str:
    """Return an image as a PNG file in a data URI."""
    return f"data:image/png;base64,{base64.b64encode(to_png(image)).decode()}"
