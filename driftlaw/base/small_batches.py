"""What an adapter does where batches are small: a window of recent images, mixed statistics, answering alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from driftlaw.errors import UsageError, collected
from driftlaw.execution.graphs import ExecutionSettings


class BatchStatsSettings(ExecutionSettings):
    """What a method that uses batch statistics does where batches are small; the defaults change nothing."""

    unsaid: ClassVar[frozenset[str]] = ExecutionSettings.unsaid | {
        "statistics",
        "window",
        "source_share",
        "minimum_batch",
    }

    statistics: Literal["batch", "window", "mixed"] = "batch"
    """Statistics of the ``batch``, of a sliding ``window`` of recent images, or ``mixed`` with the source's."""
    window: PositiveInt = 64
    """With ``window``: to how many images a smaller batch is completed, by those that came last before it."""
    source_share: float = Field(default=0.5, ge=0.0, le=1.0)
    """With ``mixed``: the share s of the source, mean = (1 − s)·batch + s·source; half and half is our choice."""
    minimum_batch: PositiveInt = 1
    """Of fewer images than this, those of the window counted, it answers and does not learn."""

    @property
    def share_of_source(self) -> float:
        """The share of the source's statistics: 0 unless they are mixed."""
        return self.source_share if self.statistics == "mixed" else 0.0


class ImageWindow(nn.Module):
    """The last ``size`` images that came, newest last; of constant size from the first one on."""

    images: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("images", torch.empty(0), persistent=False)  # nobody knows yet how large an image is
        self.filled = 0

    def complete(self, batch: Tensor) -> Tensor:
        """Return the batch with so many images that came before it in front that there are ``size`` in all."""
        wanted = min(self.size - len(batch), self.filled)
        if wanted <= 0 or self.images.shape[1:] != batch.shape[1:]:
            return batch
        return torch.cat([self.images[self.size - wanted :].to(batch), batch])

    def keep(self, batch: Tensor) -> None:
        """Take the images of a batch in; images of another shape start anew."""
        if self.images.shape[1:] != batch.shape[1:]:
            self.images, self.filled = batch.new_zeros(self.size, *batch.shape[1:]), 0
        self.images = torch.cat([self.images, batch.to(self.images)])[-self.size :].clone()
        self.filled = min(self.filled + len(batch), self.size)

    def clear(self) -> None:
        """Forget all images."""
        self.images, self.filled = self.images.new_empty(0), 0

    def get_extra_state(self) -> dict[str, Any]:
        """Return the images and how many of them are real."""
        return {"images": self.images, "filled": self.filled}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Take what ``get_extra_state`` gave."""
        self.images, self.filled = state["images"].to(self.images.device).clone(), state["filled"]


def recent_images(config: Any) -> ImageWindow | None:
    """Return room for recent images where the settings ask for them; refuse settings that would do nothing."""
    if not isinstance(config, BatchStatsSettings):
        return None
    belongs = {"window": "window", "source_share": "mixed"}
    idle = [name for name, kind in belongs.items() if name in config.model_fields_set and config.statistics != kind]
    if idle:
        told = [f"{name} = {getattr(config, name)} goes with statistics = «{belongs[name]}»" for name in idle]
        raise collected(f"these settings do nothing with statistics = «{config.statistics}»:", told)
    return ImageWindow(config.window) if config.statistics == "window" else None


def lacks_variance(error: ValueError) -> bool:
    """Tell whether a BatchNorm layer was given one value a channel, of which there is no variance."""
    return "more than 1 value per channel" in str(error)  # torch's word, in functional.batch_norm


@contextmanager
def stored_statistics(model: nn.Module) -> Iterator[None]:
    """Inside, BatchNorm layers normalize with the statistics they were trained with."""
    layers = [layer for layer in model.modules() if isinstance(layer, _BatchNorm)]
    if any(layer.running_mean is None for layer in layers):
        raise UsageError("one image has no statistics on feature maps of 1×1, and the model stores none: give more")
    before = [layer.training for layer in layers]
    try:
        for layer in layers:
            layer.training = False
        yield
    finally:
        for layer, training in zip(layers, before, strict=True):
            layer.training = training
