"""Checks of the images that an adapter receives, and translation of torch's errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from driftlaw.errors import UsageError, combined_error

HEADING = "The images cannot be used:"


def check_images(images: Any, model_dtype: torch.dtype | None, values: RangeCheck) -> None:
    """Raise a UsageError that lists every problem of a batch, or return.

    Args:
        images: what the caller passed.
        model_dtype: dtype of the model's parameters; None if it has none.
        values: the check of the value range.
    """
    if not isinstance(images, Tensor):
        raise UsageError(
            f"Expected a tensor of images, found {type(images).__name__}. Convert it with torch.as_tensor(images)."
        )
    problems = _shape_problems(images)
    if not problems and model_dtype not in (None, images.dtype) and not torch.is_autocast_enabled(images.device.type):
        problems = [f"dtype {images.dtype}: the model computes in {model_dtype}; use images.to({model_dtype})"]
    problems = problems or values.problems(images)
    if problems:
        raise combined_error(HEADING, problems)


def _shape_problems(images: Tensor) -> list[str]:
    problems = []
    if images.ndim != 4:
        problems.append(
            f"shape {tuple(images.shape)}: expected (n, channels, height, width); for a single image use images[None]"
        )
    elif images.numel() == 0:
        problems.append(f"shape {tuple(images.shape)}: the batch is empty; skip it")
    if not images.is_floating_point():
        problems.append(f"dtype {images.dtype}: expected floats in [0, 1]; divide uint8 images by 255")
    return problems


def _value_problems(low: float, high: float) -> list[str]:
    if low != low or high != high:
        return ["some pixels are NaN; check the preprocessing"]
    if low < -1e-3 or high > 1 + 1e-3:
        hint = "divide by 255" if high > 2 else "leave the normalisation to the model"
        return [f"values from {low:.3g} to {high:.3g}: expected [0, 1]; {hint}"]
    return []


class RangeCheck:
    """Checks that the pixels of every batch are in [0, 1], without making a busy GPU wait.

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

    def problems(self, images: Tensor) -> list[str]:
        """Return the problems of this batch, or of the previous one if its result was still pending."""
        if self._pending is not None:
            (ready, extremes), self._pending = self._pending, None
            ready.synchronize()
            late = _value_problems(*extremes.tolist())
            if late:
                return [
                    f"previous batch: {problem}. The model was updated on it; call reset() or load a saved state"
                    for problem in late
                ]
        stream = torch.cuda.current_stream(images.device) if images.is_cuda else None
        busy = stream is not None and not stream.query()
        extremes = torch.stack(torch.aminmax(images.detach()))
        if self._checked_once and stream is not None and busy:
            ready, on_host = torch.cuda.Event(), torch.empty(extremes.shape, dtype=extremes.dtype, pin_memory=True)
            on_host.copy_(extremes, non_blocking=True)
            ready.record(stream)
            self._pending = ready, on_host
            return []
        self._checked_once = True
        return _value_problems(*extremes.tolist())


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
        first = next((layer for layer in model.modules() if isinstance(layer, nn.Conv2d)), None)
        channels = images.shape[1]
        if first is None or "channels" not in str(error) or channels == first.in_channels:
            raise
        hint = "; for grayscale use images.expand(-1, 3, -1, -1)" if (channels, first.in_channels) == (1, 3) else ""
        problem = f"channels: found {channels}, the model's first convolution expects {first.in_channels}{hint}"
        raise combined_error(HEADING, [problem]) from error
