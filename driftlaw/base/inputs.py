"""What images an adapter takes: checked before a step, with every problem found."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def shape_problems(images: Tensor) -> list[str]:
    """Return what is wrong with the shape and the dtype of images."""
    problems = []
    if images.ndim != 4:
        problems.append(
            f"shape {tuple(images.shape)}: expected (n, channels, height, width); a single image: images[None]"
        )
    elif images.numel() == 0:
        problems.append(f"shape {tuple(images.shape)}: the batch is empty: leave it out")
    if not images.is_floating_point():
        problems.append(f"dtype {images.dtype}: expected floats in [0, 1]; for uint8 divide by 255")
    return problems


def _value_problems(low: float, high: float) -> list[str]:
    if low != low or high != high:
        return ["some pixels are NaN: look at what made them"]
    if low < -1e-3 or high > 1 + 1e-3:
        hint = "divide by 255" if high > 2 else "leave the normalisation to the model"
        return [f"values from {low:.3g} to {high:.3g}: expected [0, 1]; {hint}"]
    return []


class ValueCheck:
    """Looks whether the pixels of every batch lie in [0, 1], without making a busy GPU wait.

    Where the device has nothing else to do, and always at first, a batch is looked at before it is taken. Where steps
    are queued, the host would have to wait for all of them to see one number: then it sees it at the next call.
    """

    def __init__(self) -> None:
        self.looked = False
        self.awaited: tuple[torch.cuda.Event, Tensor] | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> ValueCheck:
        return ValueCheck()

    def __reduce__(self) -> tuple[Any, ...]:
        return ValueCheck, ()

    def problems(self, images: Tensor) -> list[str]:
        """Return what is wrong with the pixels of this batch or, where it could not be waited for, of the last."""
        late = self._of_the_last_batch()
        if late:
            return late
        extremes = torch.stack(torch.aminmax(images.detach()))
        if self.looked and _is_busy(images.device):
            self.awaited = _on_its_way(extremes)
            return []
        self.looked = True
        return _value_problems(*extremes.tolist())

    def _of_the_last_batch(self) -> list[str]:
        if self.awaited is None:
            return []
        (arrived, extremes), self.awaited = self.awaited, None
        arrived.synchronize()
        found = _value_problems(*extremes.tolist())
        return [f"the batch before: {told}; it was learned from: reset() or load a saved state" for told in found]


def _is_busy(device: torch.device) -> bool:
    return device.type == "cuda" and not torch.cuda.current_stream(device).query()


def _on_its_way(values: Tensor) -> tuple[torch.cuda.Event, Tensor]:
    """Start to copy numbers to the host; return when they are there, and where."""
    arrived, here = torch.cuda.Event(), torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    here.copy_(values, non_blocking=True)
    arrived.record(torch.cuda.current_stream(values.device))
    return arrived, here
