"""Transactions: an update of an adapter takes place completely, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes per value


def changing_tensors(adapter: Any) -> dict[str, Tensor]:
    """Return what a step may change, by name: parameters, buffers, and the moments of optimizers.

    Frozen parameters of the model and the images of the window are left out.
    """
    model: nn.Module = adapter.model
    frozen = {f"model.{name}" for name, value in model.named_parameters() if not value.requires_grad}
    named = [*adapter.named_parameters(), *adapter.named_buffers()]
    tensors = {name: value.detach() for name, value in named if name not in frozen and name != "window.images"}
    for attribute, optimizer in vars(adapter).items():
        if isinstance(optimizer, Optimizer):
            for index, parameter in enumerate(_parameters(optimizer)):
                for name, value in optimizer.state.get(parameter, {}).items():
                    if isinstance(value, Tensor):
                        tensors[f"{attribute}.{index}.{name}"] = value
    return tensors


def _parameters(optimizer: Optimizer) -> list[Tensor]:
    return [value for group in optimizer.param_groups for value in group["params"]]


class TensorCopies:
    """Copies of tensors, by name, that can be put back in place."""

    def __init__(self) -> None:
        self.copies: dict[str, Tensor] = {}

    @torch.no_grad()
    def save(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy the tensors, into the memory of earlier copies where they have the same shape."""
        kept = {name: self.copies.get(name) for name in tensors}
        fits = {
            name: copy is not None and (copy.shape, copy.dtype, copy.device) == (value.shape, value.dtype, value.device)
            for (name, value), copy in zip(tensors.items(), kept.values(), strict=True)
        }
        self.copies = {name: kept[name] if fits[name] else torch.empty_like(tensors[name]) for name in tensors}  # type: ignore[misc]
        if tensors:
            torch._foreach_copy_(list(self.copies.values()), list(tensors.values()))

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Put the copies back. Tensors without a copy, such as moments that were created since, become 0."""
        for name, value in tensors.items():
            copy = self.copies.get(name)
            if copy is None:
                value.zero_()
            elif copy.shape == value.shape:
                value.copy_(copy)
            else:  # a buffer that got its size from a batch
                value.resize_(copy.shape).copy_(copy)


class Transaction:
    """Runs updates of one adapter. An update whose result is not finite, or that raises an exception, is undone.

    Attributes:
        max_update: largest norm of an update, relative to the norm of the updated parameters; None: any.
        scale: factor of every update; ``set_scale`` changes it.
        before: copies of what a step may change, from before the last update.
    """

    def __init__(self, max_update: float | None = None) -> None:
        self.max_update = max_update
        self.scale = 1.0
        self._scale_on_device: Tensor | None = None  # captured steps read it
        self.before = TensorCopies()
        self._unchecked: set[str] | None = None  # tensors that are infinite at first, as SAR's average loss

    def __deepcopy__(self, memo: dict[int, Any]) -> Transaction:
        return Transaction(self.max_update)

    def __reduce__(self) -> tuple[Any, ...]:
        return Transaction, (self.max_update,)

    def set_scale(self, scale: float) -> None:
        """Set the factor of later updates, those of captured steps too."""
        self.scale = scale
        if self._scale_on_device is not None:
            self._scale_on_device.fill_(scale)

    def run(self, adapter: Any, update: Callable[[], Any]) -> tuple[Any, Tensor]:
        """Return the output of an update, and a bool scalar: whether it was kept. Nothing is read back from a GPU."""
        before = changing_tensors(adapter)
        self.before.save(before)
        try:
            output = update()
        except BaseException:
            self.undo(adapter, before)
            raise
        if not hasattr(output, "logits"):  # the step of a user's method; the caller checks its output
            return output, torch.ones((), dtype=torch.bool)
        with torch.no_grad():
            after = changing_tensors(adapter)
            accepted = self._judge(adapter, after, output.logits)
            if accepted.device.type != "cpu":
                keep_or_restore(after, self.before.copies, accepted)
            elif not accepted:
                self.before.restore(after)
        return output, accepted

    def undo(self, adapter: Any, before: Mapping[str, Tensor]) -> None:
        """Return to the tensors before an update that raised an exception; moments that it created are removed."""
        now = changing_tensors(adapter)  # an update may replace a buffer
        self.before.restore({name: now[name] for name in before})
        with_moments = {name.rpartition(".")[0] for name in before}
        for attribute, optimizer in vars(adapter).items():
            if isinstance(optimizer, Optimizer):
                for index, parameter in enumerate(_parameters(optimizer)):
                    if f"{attribute}.{index}" not in with_moments:
                        optimizer.state.pop(parameter, None)
        adapter.zero_grad(set_to_none=True)

    def _judge(self, adapter: Any, after: Mapping[str, Tensor], logits: Tensor) -> Tensor:
        """Scale the update, and return whether its result is finite and its norm small enough."""
        updated = [name for name in (f"model.{name}" for name in adapter.trainable_names) if name in after]
        values, copies = [after[name] for name in updated], [self.before.copies[name] for name in updated]
        if self.scale != 1 or (logits.device.type != "cpu" and self.max_update is not None):
            if self._scale_on_device is None or self._scale_on_device.device != logits.device:
                self._scale_on_device = torch.full((), self.scale, device=logits.device)  # in the first, eager steps
            for value, copy in zip(values, copies, strict=True):
                value.copy_(torch.lerp(copy, value, self._scale_on_device.to(value.dtype)))
        accepted = logits.isfinite().all()
        if self._unchecked is None:
            initial = adapter._initial_state["tensors"].items()
            self._unchecked = {name for name, value in initial if not value.isfinite().all()}
        floats = {name: value for name, value in after.items() if value.is_floating_point() and value.numel()}
        for tensors in _by_dtype(value for name, value in floats.items() if name not in self._unchecked):
            accepted &= torch.stack(torch._foreach_norm(tensors, torch.inf)).isfinite().all()
        if self.max_update is not None and values:
            change, size = _norm(torch._foreach_sub(values, copies)), _norm(copies)
            accepted &= change <= self.max_update * size
        return accepted


def keep_or_restore(tensors: Mapping[str, Tensor], copies: Mapping[str, Tensor], keep: Tensor) -> None:
    """Put copies back in place unless ``keep`` is True, with few kernels and without reading it on the host.

    The bits of all values are multiplied as integers: NaN times 0 would be NaN. Tensors without a copy become 0.

    Args:
        tensors: the tensors, by name.
        copies: their copies, by name.
        keep: bool scalar on the device of the tensors.
    """
    pairs = {name: (value, copies.get(name)) for name, value in tensors.items() if value.numel()}
    for bits, dtype in INTEGERS.items():
        chosen = [pair for pair in pairs.values() if pair[0].element_size() == bits]
        values = [value.view(dtype) for value, _ in chosen]
        kept = [
            torch.zeros_like(value) if copy is None else copy.view(dtype)
            for value, (_, copy) in zip(values, chosen, strict=True)
        ]
        if values:
            flag = keep.to(dtype)
            torch._foreach_mul_(values, flag)
            torch._foreach_add_(values, torch._foreach_mul(kept, 1 - flag))


def _by_dtype(tensors: Iterable[Tensor]) -> list[list[Tensor]]:
    groups: dict[torch.dtype, list[Tensor]] = {}
    for value in tensors:
        groups.setdefault(value.dtype, []).append(value)
    return list(groups.values())


def _norm(tensors: Sequence[Tensor]) -> Tensor:
    norms = [torch.stack(torch._foreach_norm(group)).double() for group in _by_dtype(tensors)]
    return torch.cat(norms).square().sum().sqrt()


class PendingFlags:
    """Results of updates that a GPU may not have computed yet; they are read when they are there."""

    def __init__(self) -> None:
        self._flags: list[tuple[Any, Tensor]] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> PendingFlags:
        return PendingFlags()

    def __reduce__(self) -> tuple[Any, ...]:
        return PendingFlags, ()

    def add(self, flag: Tensor) -> None:
        """Add a bool scalar."""
        if not flag.is_cuda:
            self._flags.append((None, flag))
            return
        on_host = torch.empty((), dtype=torch.bool, pin_memory=True).copy_(flag, non_blocking=True)
        ready = torch.cuda.Event()
        ready.record()
        self._flags.append((ready, on_host))

    def take(self, *, wait: bool = False) -> list[bool]:
        """Return and remove the values that are there, or all after waiting for them, oldest first."""
        for ready, _ in self._flags if wait else ():
            if ready:
                ready.synchronize()
        count = next((i for i, (ready, _) in enumerate(self._flags) if ready and not ready.query()), len(self._flags))
        taken, self._flags = self._flags[:count], self._flags[count:]
        return [bool(flag) for _, flag in taken]
