"""Inputs of an adapter: conversion of batches to images in [0, 1], with checks, and translation of torch's errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from PIL.Image import Image
from torch import Tensor, nn

from driftlaw.base.model_copy import GIVEN_DTYPE
from driftlaw.errors import UsageError, combined_error, warn_user
from driftlaw.models.normalize import INPUT_BUFFERS, read_mean_std

HEADING = "The images cannot be used:"
TOLERANCE = 1e-3
"""How far pixels may be outside of [0, 1]; images of 16 bits have the precision of their type in addition."""


class InputConverter:
    """Converts the batches that a caller passes to images in [0, 1] of shape (n, c, h, w).

    Args:
        config: settings with ``mean``, ``std`` and ``inputs``; settings that lack them have images in [0, 1].
    """

    def __init__(self, config: Any = None) -> None:
        mean, std, self.inputs = (getattr(config, name, None) for name in ("mean", "std", "inputs"))
        self.mean_std = read_mean_std(mean, std)
        if self.inputs is not None and self.mean_std is None:
            raise UsageError(f"inputs='{self.inputs}' has no effect without mean and std. Pass them, or omit inputs.")
        self.normalized = self.mean_std is not None and self.inputs != "unit"
        self.wait_for_values = False  # several ranks must find the same problems at the same step
        self._range_check = RangeCheck()

    def to_unit(self, images: Any, model: nn.Module, *, check_values: bool = True) -> Tensor:
        """Return images in [0, 1]; bytes are divided by 255, normalised images are multiplied by std plus mean.

        The result has the dtype of the model.

        Args:
            images: what the caller passed.
            model: the model, with the buffers of ``normalize_inputs`` if ``mean`` and ``std`` are given.
            check_values: whether all pixels must be in range; see ``usable``.

        Raises:
            UsageError: a list of all problems of the batch.
        """
        if not isinstance(images, Tensor):
            raise UsageError(f"Expected a tensor of images, {_describe_batch(images)}")
        if images.is_nested or images.layout != torch.strided or images.is_meta:
            raise UsageError("The images are a sparse, nested or meta tensor. Pass a dense one: images.to_dense().")
        dtype = next((value.dtype for value in model.parameters() if value.is_floating_point()), None)
        problems = _shape_problems(images, model)
        if images.dtype != torch.uint8 and not images.is_floating_point():
            problems.append(f"dtype {images.dtype}: expected floats, or bytes from 0 to 255, images.to(torch.uint8)")
        channels = len(self.mean_std[0]) if self.mean_std else 1
        if not problems and channels not in (1, images.shape[1]):
            problems = [f"channels: found {images.shape[1]}, but mean and std have {channels} numbers"]
        if images.dtype == torch.uint8 and not problems:
            return images.to(dtype or torch.get_default_dtype()).div(255)
        if problems := problems or (self._range_check.problems(images, self) if check_values else []):
            raise combined_error(HEADING, problems)
        unit: Tensor = images.to(dtype or images.dtype)
        if not self.normalized:
            return unit
        mean, std = (getattr(model, name).to(unit) for name in INPUT_BUFFERS)
        return torch.addcmul(mean, unit.detach(), std).clamp_(0, 1)

    def usable(self, images: Tensor, model: nn.Module) -> Tensor:
        """Return for every image whether all of its pixels are finite and in range, (n,)."""
        if not images.is_floating_point():
            return torch.ones(len(images), dtype=torch.bool, device=images.device)
        if self.normalized:
            mean, std = (getattr(model, name).to(images) for name in INPUT_BUFFERS)
            images = torch.addcmul(mean, images, std)
        low, high = torch.aminmax(images.detach().flatten(1), dim=1)
        tolerance = TOLERANCE + torch.finfo(images.dtype).eps
        return (low >= -tolerance) & (high <= 1 + tolerance)

    def from_unit(self, images: Tensor, model: nn.Module) -> Tensor:
        """Return images in [0, 1] as the caller passes them: the inverse of ``to_unit``."""
        if not self.normalized:
            return images
        mean, std = (getattr(model, name).to(images) for name in INPUT_BUFFERS)
        return images.sub(mean).div(std)

    def value_problems(self, extremes: Tensor, *, first: bool = False) -> list[str]:
        """Return the problems of a batch with these lowest and highest values (2,), or (2, channels), on the CPU."""
        if extremes.isnan().any():
            return ["some pixels are NaN; check the preprocessing"]
        low, high = float(extremes[0].min()), float(extremes[1].max())
        found, tolerance = f"values from {low:.3g} to {high:.3g}", TOLERANCE + torch.finfo(extremes.dtype).eps
        if self.normalized:
            if first and 0 <= low < high <= 1:
                warn_user(
                    f"The first batch has {found}, like images that are not normalised. They were read as normalised "
                    "images, because mean and std are given. If they are in [0, 1], set inputs='unit'."
                )
            mean, std = torch.tensor(self.mean_std, dtype=torch.float64)
            extremes = extremes.double() * std + mean
            low, high = float(extremes[0].min()), float(extremes[1].max())
            found += f", which are {low:.3g} to {high:.3g} after x · std + mean"
        if low >= -tolerance and high <= 1 + tolerance:
            return []
        if self.normalized:
            hint = "check mean and std; if the images are not normalised, set inputs='unit'"
        elif self.inputs == "unit":
            hint = "for normalised images omit inputs='unit'"
        elif low >= -0.1 and high <= 1.1:
            hint = "use images.clamp(0, 1)"
        elif low < 0:
            hint = "these look like normalised images; pass the mean= and std= of the normalisation to driftlaw.adapt"
        else:
            hint = "divide by 255, or pass uint8 images"
        return [f"{found}: expected [0, 1]; {hint}"]


def _describe_batch(batch: Any) -> str:
    """Return what was found instead of a tensor, and how to get a tensor from it."""
    found = f"found {type(batch).__name__}"
    if isinstance(batch, Mapping):
        keys = [key for key, value in batch.items() if isinstance(value, Tensor) and value.ndim == 4] or list(batch)
        return f"{found} with the keys {', '.join(map(str, batch))}. Pass batch[{keys[0]!r}]." if keys else f"{found}."
    if isinstance(batch, list | tuple) and batch:
        if all(isinstance(item, Image) for item in batch):
            return f"{found} of {len(batch)} PIL images. Pass a tensor of shape (n, channels, height, width)."
        same = len(batch) > 1 and all(isinstance(item, Tensor) and item.ndim == 3 for item in batch)
        return f"{found} of {len(batch)} items. Pass {'torch.stack(batch)' if same else 'batch[0]'}."
    if isinstance(batch, np.ndarray):
        order = {4: ".permute(0, 3, 1, 2)", 3: ".permute(2, 0, 1).unsqueeze(0)"} if batch.shape[-1:] <= (4,) else {}
        return f"{found} of shape {batch.shape}. Pass torch.from_numpy(images){order.get(batch.ndim, '')}."
    if isinstance(batch, Image):
        return f"{found}. Pass torch.from_numpy(numpy.array(image)).permute(2, 0, 1).unsqueeze(0)."
    return f"{found}. Pass a tensor of shape (n, channels, height, width)."


def _shape_problems(images: Tensor, model: nn.Module) -> list[str]:
    shape = tuple(images.shape)
    first = first_convolution(model)
    is_last = images.ndim in (3, 4) and shape[-1] in (1, 3, 4) and shape[-3] > 4
    is_last = is_last and (first is None or first.in_channels != shape[-3])
    if images.ndim == 3:
        remedy = "images.permute(2, 0, 1).unsqueeze(0)" if is_last else "images.unsqueeze(0)"
        return [f"shape {shape}: expected (n, channels, height, width); for a single image use {remedy}"]
    if images.ndim != 4:
        return [f"shape {shape}: expected (n, channels, height, width)"]
    if images.numel() == 0:
        return [f"shape {shape}: the batch is empty; skip it"]
    if is_last:
        return [f"shape {shape}: expected (n, channels, height, width); use images.permute(0, 3, 1, 2)"]
    return []


def first_convolution(model: nn.Module) -> nn.Conv2d | None:
    """Return the first convolution of a model, which usually receives the images."""
    return next((layer for layer in model.modules() if isinstance(layer, nn.Conv2d)), None)


class RangeCheck:
    """Checks the values of every batch, without making a busy GPU wait.

    The first batch, and any batch while the device is idle, is checked before it is used. If steps are queued on a GPU,
    reading a number back would wait for all of them; the result is then read at the next call.
    """

    def __init__(self) -> None:
        self._checked_once = False
        self._pending: tuple[torch.cuda.Event, Tensor] | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> RangeCheck:
        return RangeCheck()

    def __reduce__(self) -> tuple[Any, ...]:
        return RangeCheck, ()

    def problems(self, images: Tensor, inputs: InputConverter) -> list[str]:
        """Return the problems of this batch, or of the previous one if its result was still pending."""
        if self._pending is not None:
            (ready, extremes), self._pending = self._pending, None
            ready.synchronize()
            late = inputs.value_problems(extremes)
            if late:
                return [
                    f"previous batch: {problem}. The model was updated on it; call reset() or load a saved state"
                    for problem in late
                ]
        stream = torch.cuda.current_stream(images.device) if images.is_cuda else None
        busy = stream is not None and not inputs.wait_for_values and not stream.query()
        axes = (0, 2, 3)
        extremes = torch.stack(
            (images.amin(axes), images.amax(axes)) if inputs.normalized else torch.aminmax(images)
        ).detach()
        if self._checked_once and stream is not None and busy:
            ready, on_host = torch.cuda.Event(), torch.empty(extremes.shape, dtype=extremes.dtype, pin_memory=True)
            on_host.copy_(extremes, non_blocking=True)
            ready.record(stream)
            self._pending = ready, on_host
            return []
        first, self._checked_once = not self._checked_once, True
        return inputs.value_problems(extremes.cpu(), first=first)


@contextmanager
def translate_errors(images: Tensor, model: nn.Module, method: str) -> Iterator[None]:
    """Context manager that replaces torch's errors about channels and missing gradients by a UsageError."""
    try:
        yield
    except RuntimeError as error:
        if "does not require grad" in str(error):
            raise UsageError(
                f"{method} needs gradients, but the model's output does not require grad. Possible causes: forward() "
                "runs under torch.no_grad(), it detaches its output, or parameters were frozen after driftlaw.adapt()."
            ) from error
        if getattr(model, GIVEN_DTYPE, None) and ("should be the same" in str(error) or "same dtype" in str(error)):
            raise UsageError(
                "The model converts values to 16 bits in forward(), but an adapter keeps float32 weights. Convert them "
                "to the dtype of the next layer's weight instead, or pass model.float()."
            ) from error
        first = first_convolution(model)
        channels = images.shape[1]
        about_channels = "channels" in str(error) or "at non-singleton dimension 1" in str(error)
        if first is None or not about_channels or channels == first.in_channels:
            raise
        hint = "; for grayscale use images.expand(-1, 3, -1, -1)" if (channels, first.in_channels) == (1, 3) else ""
        problem = f"channels: found {channels}, the model's first convolution expects {first.in_channels}{hint}"
        raise combined_error(HEADING, [problem]) from error
