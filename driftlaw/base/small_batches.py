"""Small batches: settings for batch statistics, windows of recent images, running and stored statistics."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from driftlaw.errors import UsageError, combined_error
from driftlaw.execution import ExecutionSettings
from driftlaw.execution.batch_statistics import StoredWeight, batch_norm_layers
from driftlaw.execution.split_pass import mean_and_variance

FULL_BATCH = 32  # images; ``auto`` uses the statistics of batches with at least this many
SOURCE_SHARE = 0.2  # of ``auto``; chosen on the held-out corruptions, as FULL_BATCH and the default of ``window``


class BatchStatsSettings(ExecutionSettings):
    """Settings of methods that use batch statistics. By default all batch sizes give similar errors."""

    omit_if_default: ClassVar[frozenset[str]] = ExecutionSettings.omit_if_default | {
        "statistics",
        "window",
        "source_share",
        "minimum_batch",
    }

    value_if_absent: ClassVar[Mapping[str, Any]] = {"statistics": "batch"}  # the default before ``auto``

    statistics: Literal["auto", "batch", "window", "mixed", "adaptive"] = "auto"
    """Statistics of the ``batch``, of a sliding ``window`` of recent images, or ``mixed`` with the stored ones.
    ``adaptive`` mixes them, too: the more the batch differs from the training data, the more its statistics count. Each
    pass then costs one more forward pass. ``auto`` uses those of the batch if it has 32 images or more. It predicts
    smaller batches with running statistics of recent images, and collects them for an update. For networks with logits
    per pixel ``auto`` is ``adaptive`` instead."""
    window: int = Field(default=64, ge=1, le=100_000)
    """With ``window``: number of images to which a smaller batch is filled up with the most recent ones. With ``auto``:
    number of images that are collected for an update. Each image has the weight 1/``window`` in running statistics."""
    source_share: float = Field(default=0.5, ge=0.0, le=1.0)
    """With ``mixed``: weight s of the stored (source) statistics, mean = (1 − s)·batch + s·stored. The default is a
    choice of this library."""
    minimum_batch: int = Field(default=1, ge=1, le=100_000)
    """With fewer images than this, including those of the window, the model predicts without updating."""

    @property
    def stored_stats_weight(self) -> StoredWeight:
        """Weight of the stored statistics: 0 unless they are mixed with those of the batch."""
        if self.statistics == "adaptive":
            return "adaptive"
        return self.source_share if self.statistics == "mixed" else 0.0


class AugmentationSettings(BatchStatsSettings):
    """Settings of methods that compare predictions of a batch with those of its augmentation."""

    omit_if_default: ClassVar[frozenset[str]] = BatchStatsSettings.omit_if_default | {"dense_augmentation"}

    dense_augmentation: Literal["photometric", "geometric"] = "photometric"
    """For logits per pixel: ``photometric`` augmentation moves no pixel. ``geometric`` also rotates, shifts, scales and
    flips; predictions are moved back, and pixels that left the image are not compared."""


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

    @property
    def recent(self) -> Tensor:
        """The images, newest last."""
        return self.images[self.size - self.filled :]

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
        images, filled = state["images"], state["filled"]
        if (images.numel() and (images.ndim, len(images)) != (4, self.size)) or filled > self.size:
            raise ValueError(f"the window has {filled} images of shape {tuple(images.shape)}, expected {self.size}")
        self.images, self.filled = images.to(self.images.device).clone(), filled


class CollectingWindow(ImageWindow):
    """The images of small batches, collected for one update, and running statistics of BatchNorm layers.

    For n images with mean μ_b and variance v_b at a layer, the running statistics μ and v, at first the stored μ_s and
    v_s, become, with a = 1 − (1 − 1/``window``)ⁿ,

        μ ← (1 − a)·μ + a·μ_b,      v ← (1 − a)·v + a·v_b + a·(1 − a)·(μ_b − μ)².

    The layer then normalizes with (1 − s)·μ + s·μ_s and (1 − s)·v + s·v_s, where s = 0.2. After a full batch, whose
    images are not part of the running statistics, a = 1 and the small batch is padded with those images.

    Args:
        config: settings with ``window`` and ``minimum_batch``. An update needs as many images as the larger of them.
        layers: the BatchNorm layers.
    """

    def __init__(self, config: BatchStatsSettings, layers: list[_BatchNorm]) -> None:
        self.target = max(config.window, config.minimum_batch)
        super().__init__(self.target + FULL_BATCH)
        self.weight = 1 / config.window
        self.full_batch = min(FULL_BATCH, config.window)
        self.pending = 0  # images since the last update, at the start of ``images``
        self.stored_everywhere = all(layer.running_mean is not None for layer in layers)
        self.outdated = not self.stored_everywhere
        for number, layer in enumerate(layers):
            for name, value in (("mean", layer.running_mean), ("variance", layer.running_var)):
                self.register_buffer(f"{name}_{number}", None if value is None else value.detach().clone())

    @property
    def recent(self) -> Tensor:
        """The most recent images, in no particular order."""
        return self.images[: self.filled]

    def is_small(self, batch: Tensor) -> bool:
        """Return True if a batch is too small for statistics and updates of its own."""
        return len(batch) < self.full_batch

    def pad(self, batch: Tensor) -> Tensor:
        """Return the batch, with recent images in front if it is small and they are not in the running statistics."""
        if not (self.outdated and self.is_small(batch)) or self.images.shape[1:] != batch.shape[1:]:
            return batch
        return torch.cat([self.recent.to(batch), batch])

    def collected(self, batch: Tensor) -> Tensor | None:
        """Return the images since the last update with a small batch, if they are enough for an update, else None."""
        pending = self.pending if self.images.shape[1:] == batch.shape[1:] else 0
        return torch.cat([self.images[:pending], batch]) if pending + len(batch) >= self.target else None

    def append(self, batch: Tensor) -> None:
        """Add the images of a batch. A full batch, and images of another shape, replace all."""
        small = self.is_small(batch)
        if self.images.shape[1:] != batch.shape[1:]:
            self.images, self.filled, self.pending = batch.new_zeros(self.size, *batch.shape[1:]), 0, 0
        start = self.pending if small else 0
        end = min(start + len(batch), self.size)
        self.images[start:end] = batch[start - end :]
        self.filled = max(end, self.filled) if small else end
        self.pending = end if small and end < self.target else 0
        self.outdated = not small or not self.stored_everywhere

    def clear(self) -> None:
        """Remove all images."""
        super().clear()
        self.pending, self.outdated = 0, not self.stored_everywhere

    @contextmanager
    def running_statistics(self, layers: list[_BatchNorm], count: int, *, update: bool) -> Iterator[None]:
        """Context manager in which layers that use batch statistics normalize with the running statistics.

        Args:
            layers: the BatchNorm layers, in the same order as before.
            count: number of images in the batch that the layers receive inside.
            update: whether the running statistics are changed, or only mixed with those of the batch.
        """
        full = self.outdated and count >= self.full_batch
        share = 1.0 if full else 1 - (1 - self.weight) ** count

        def make_hook(number: int, stored_mean: Tensor, stored_variance: Tensor) -> Any:
            def hook(layer: _BatchNorm, args: tuple[Tensor, ...]) -> None:
                mean, variance = self.get_buffer(f"mean_{number}"), self.get_buffer(f"variance_{number}")
                batch_mean, batch_variance = mean_and_variance(args[0].to(mean.dtype))
                between = share * (1 - share) * (batch_mean - mean).square()
                new_mean, new_variance = mean.lerp(batch_mean, share), variance.lerp(batch_variance, share) + between
                if update:
                    mean.copy_(new_mean)
                    variance.copy_(new_variance)
                layer.running_mean = new_mean.lerp(stored_mean, SOURCE_SHARE)
                layer.running_var = new_variance.lerp(stored_variance, SOURCE_SHARE)

            return hook

        changed = [
            (number, layer, layer.running_mean, layer.running_var)
            for number, layer in enumerate(layers)
            if layer.training and layer.running_mean is not None and layer.running_var is not None
        ]
        hooks = []
        try:
            for number, layer, mean, variance in changed:
                hooks.append(layer.register_forward_pre_hook(make_hook(number, mean, variance)))
                layer.training = False
            yield
        finally:
            for hook in hooks:
                hook.remove()
            for _, layer, mean, variance in changed:
                layer.running_mean, layer.running_var, layer.training = mean, variance, True

    def get_extra_state(self) -> dict[str, Any]:
        """Return the images, their number, and what they are needed for."""
        return super().get_extra_state() | {"pending": self.pending, "outdated": self.outdated}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore what ``get_extra_state`` returned."""
        super().set_extra_state(state)
        if state["pending"] > min(self.filled, self.target - 1):
            raise ValueError(f"{state['pending']} of {self.filled} images in the window wait for an update")
        self.pending, self.outdated = state["pending"], state["outdated"]


def make_window(config: Any, owner: nn.Module) -> ImageWindow | None:
    """Return a window for an adapter if the settings ask for one; raise if a setting has no effect."""
    if not isinstance(config, BatchStatsSettings):
        return None
    belongs_to = {"window": ("window", "auto"), "source_share": ("mixed",)}
    unused = [
        name for name, kinds in belongs_to.items() if name in config.model_fields_set and config.statistics not in kinds
    ]
    if unused:
        problems = [f"{name}={getattr(config, name)} needs statistics='{belongs_to[name][0]}'" for name in unused]
        raise combined_error(f"These settings have no effect with statistics='{config.statistics}':", problems)
    if config.statistics not in ("auto", "window"):
        return None
    is_auto = config.statistics == "auto"
    window = CollectingWindow(config, batch_norm_layers(owner)) if is_auto else ImageWindow(config.window)
    dtypes = {value.dtype for value in owner.parameters()}
    return window.double() if torch.float64 in dtypes else window


def lacks_variance(error: ValueError) -> bool:
    """Return True if a BatchNorm layer had one value per channel, which has no variance."""
    return "more than 1 value per channel" in str(error)  # message of functional.batch_norm


@contextmanager
def stored_statistics(model: nn.Module) -> Iterator[None]:
    """Context manager in which BatchNorm layers use the statistics of training."""
    layers = batch_norm_layers(model)
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
