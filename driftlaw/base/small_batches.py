"""Small batches: settings for batch statistics, a window of recent images, fallback to stored statistics."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from driftlaw.errors import UsageError, combined_error
from driftlaw.execution import ExecutionSettings


class BatchStatsSettings(ExecutionSettings):
    """Settings of methods that use batch statistics, for small batches. The defaults change nothing."""

    omit_if_default: ClassVar[frozenset[str]] = ExecutionSettings.omit_if_default | {
        "statistics",
        "window",
        "source_share",
        "minimum_batch",
    }

    statistics: Literal["batch", "window", "mixed"] = "batch"
    """Statistics of the ``batch``, of a sliding ``window`` of recent images, or ``mixed`` with the stored ones."""
    window: PositiveInt = 64
    """With ``window``: number of images to which a smaller batch is filled up with the most recent ones."""
    source_share: float = Field(default=0.5, ge=0.0, le=1.0)
    """With ``mixed``: weight s of the stored (source) statistics, mean = (1 − s)·batch + s·stored. The default is a
    choice of this library."""
    minimum_batch: PositiveInt = 1
    """With fewer images than this, including those of the window, the model predicts without updating."""

    @property
    def stored_stats_weight(self) -> float:
        """Weight of the stored statistics: 0 unless they are mixed with those of the batch."""
        return self.source_share if self.statistics == "mixed" else 0.0


class ImageWindow(nn.Module):
    """The last ``size`` images, newest last.

    Args:
        size: number of images.
    """

    images: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("images", torch.empty(0), persistent=False)  # the size of an image is not known yet
        self.filled = 0

    def pad(self, batch: Tensor) -> Tensor:
        """Return the batch with recent images in front of it, up to ``size`` images in all."""
        count = min(self.size - len(batch), self.filled)
        if count <= 0 or self.images.shape[1:] != batch.shape[1:]:
            return batch
        return torch.cat([self.images[self.size - count :].to(batch), batch])

    def append(self, batch: Tensor) -> None:
        """Add the images of a batch; images of another shape replace all."""
        if self.images.shape[1:] != batch.shape[1:]:
            self.images, self.filled = batch.new_zeros(self.size, *batch.shape[1:]), 0
        self.images = torch.cat([self.images, batch.to(self.images)])[-self.size :].clone()
        self.filled = min(self.filled + len(batch), self.size)

    def clear(self) -> None:
        """Remove all images."""
        self.images, self.filled = self.images.new_empty(0), 0

    def get_extra_state(self) -> dict[str, Any]:
        """Return the images and their number."""
        return {"images": self.images, "filled": self.filled}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore what ``get_extra_state`` returned."""
        self.images, self.filled = state["images"].to(self.images.device).clone(), state["filled"]


def make_window(config: Any) -> ImageWindow | None:
    """Return a window if the settings ask for one; raise if a setting has no effect."""
    if not isinstance(config, BatchStatsSettings):
        return None
    belongs_to = {"window": "window", "source_share": "mixed"}
    unused = [
        name for name, kind in belongs_to.items() if name in config.model_fields_set and config.statistics != kind
    ]
    if unused:
        problems = [f"{name}={getattr(config, name)} needs statistics='{belongs_to[name]}'" for name in unused]
        raise combined_error(f"These settings have no effect with statistics='{config.statistics}':", problems)
    return ImageWindow(config.window) if config.statistics == "window" else None


def lacks_variance(error: ValueError) -> bool:
    """Return True if a BatchNorm layer had one value per channel, which has no variance."""
    return "more than 1 value per channel" in str(error)  # message of functional.batch_norm


@contextmanager
def stored_statistics(model: nn.Module) -> Iterator[None]:
    """Context manager in which BatchNorm layers use the statistics of training."""
    layers = [layer for layer in model.modules() if isinstance(layer, _BatchNorm)]
    if any(layer.running_mean is None for layer in layers):
        raise UsageError(
            "A single image has no batch statistics on 1×1 feature maps, and the model stores none. Use larger batches."
        )
    previous = [layer.training for layer in layers]
    try:
        for layer in layers:
            layer.training = False
        yield
    finally:
        for layer, training in zip(layers, previous, strict=True):
            layer.training = training
