"""Monitoring of an adapter: diagnostics of every step, callbacks, and ``summary``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Protocol, TypeVar

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from driftlaw.base import diagnostics
from driftlaw.base.diagnostics import Monitor, SourceModel
from driftlaw.base.state import AdapterState
from driftlaw.base.types import StepOutput
from driftlaw.dense import every_nth_pixel
from driftlaw.errors import UsageError

RECENT = 10  # steps over which a summary averages


class Callback(Protocol):
    """What ``Adapter.add_callback`` expects: any object with these two methods.

    If it also has a method ``on_guard_event(adapter, event)``, the guard calls it with every ``GuardEvent``.
    """

    def on_step(self, adapter: Any, output: StepOutput) -> None:
        """Receive the output of a finished step; ``adapter.steps`` is its number. Reading a value waits for a GPU."""

    def close(self) -> None:
        """Release files and connections; ``Adapter.close`` calls it."""


C = TypeVar("C", bound=Callback)


class CallbackList(list[Callback]):
    """Callbacks of one adapter. A copy or pickle is empty, because two adapters must not write to the same file."""

    def __deepcopy__(self, memo: dict[int, Any]) -> CallbackList:
        return CallbackList()

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return CallbackList, ()


class History:
    """What a summary needs from past steps: entropy and class shares of the first and last ones, and sample images.

    It is not part of the adapter's state. It starts again if the adapter was reset or loaded since the last step.
    """

    def __init__(self) -> None:
        self.steps = self.count = self.images = 0
        self.first = self.last = self.sample = self.logits = torch.empty(0)

    def add(self, steps: int, updated: bool, values: Tensor, images: Tensor, logits: Tensor, sample: int) -> None:
        """Add a step; ``values`` are its entropy and class shares."""
        if not self.count or steps != self.steps + updated:
            self.count = self.images = 0
            self.first, self.last = values.repeat(RECENT, 1), values.repeat(RECENT, 1)
        if self.count < RECENT:
            self.first[self.count] = values
        self.last[self.count % RECENT] = values
        stride = -(-len(images) // sample)
        self.sample, self.logits = images[::stride].clone(), logits[::stride].clone()
        self.steps, self.count, self.images = steps, self.count + 1, self.images + len(images)


class MonitoredState(AdapterState):
    """Diagnostics, callbacks and summary of an adapter.

    Attributes:
        monitor: which steps are compared with the source model; by default none.
        callbacks: the callbacks, in the order in which they are called.
    """

    title: ClassVar[str]

    def start_monitoring(self) -> None:
        """Remember the structure of the source model; called before ``configure``."""
        self.monitor = Monitor(every=0)
        self.callbacks = CallbackList()
        self._source = SourceModel(self.model)
        self._history = History()

    def add_callback(self, callback: C) -> C:
        """Call ``callback.on_step(adapter, output)`` after every step, and return the callback.

        If a callback raises an exception, the step raises it; the update is complete by then. Callbacks stay after
        ``reset`` and ``load_state_dict``. They are not saved, copied or pickled with the adapter.
        """
        if isinstance(callback, type) or not (hasattr(callback, "on_step") and hasattr(callback, "close")):
            raise UsageError(
                f"Expected an object with the methods on_step(adapter, output) and close(), found {callback!r}. "
                "driftlaw.callbacks has ready ones."
            )
        self.callbacks.append(callback)
        return callback

    def close(self) -> None:
        """Close and remove all callbacks. The adapter can still be used."""
        while self.callbacks:
            self.callbacks.pop().close()

    def source_logits(self, images: Tensor, *, batch_share: float = 0.0) -> Tensor:
        """Return the logits of the source model; nothing changes.

        Args:
            images: (n, c, h, w) in [0, 1].
            batch_share: share of these images in the statistics of BatchNorm layers; the stored ones have the rest.
        """
        kept = self._initial_state["tensors"]
        values = {name: kept.get(f"model.{name}", value) for name, value in self.model.named_parameters()}
        with self._executor.context(images, images.dtype):
            return self._source.logits(values, images, batch_share=batch_share)

    def layer_distances(self) -> Tensor:
        """Return ‖θ − θ_source‖ / ‖θ_source‖ of every adapted tensor, in the order of ``trainable_names``."""
        initial = [self._initial_state["tensors"][f"model.{name}"] for name in self.trainable_names]
        return diagnostics.relative_distances(initial, self.trainable_parameters())

    @contextmanager
    def unmonitored(self) -> Iterator[None]:
        """Context manager in which steps are not measured, call no callbacks and do not count for ``summary``."""
        before = self.monitor, self.callbacks, self._history
        self.monitor, self.callbacks, self._history = Monitor(every=0), CallbackList(), History()
        if self.guard is not None:
            self.guard.enabled = False
        try:
            yield
        finally:
            self.monitor, self.callbacks, self._history = before
            if self.guard is not None:
                self.guard.enabled = True

    def finish_step(self, images: Tensor, output: StepOutput, *, updated: bool) -> StepOutput:
        """Return the output of a step with the diagnostics of every method, and call the callbacks with it.

        For logits per pixel the diagnostics are those of every n-th pixel, see ``driftlaw.dense.every_nth_pixel``.
        """
        logits, monitor, history = every_nth_pixel(output.logits), self.monitor, self._history
        with torch.inference_mode(False), torch.no_grad():
            entropy, shares = diagnostics.mean_entropy(logits), diagnostics.class_shares(logits)
            values: dict[str, Tensor | float] = {"entropy": entropy, "predicted_classes": (shares > 0).sum()}
            if len(shares) <= diagnostics.MAX_CLASSES:
                values["class_shares"] = shares
            history.add(self.steps, updated, torch.cat([entropy[None], shares]), images, logits, sample=monitor.sample)
            if monitor.every and updated and (self.steps - 1) % monitor.every == 0:
                values["source_agreement"] = diagnostics.agreement(history.logits, self.source_logits(history.sample))
                if self.trainable_names:
                    values["layer_distance"] = self.layer_distances()
        output = StepOutput(output.logits, {**values, **output.diagnostics})
        for callback in tuple(self.callbacks):
            callback.on_step(self, output)
        return output

    def summary(self) -> Summary:
        """Return what the adapter did since construction, or the last reset or load: a dict that prints as short text.

        Entropies are means over the first and the last ten steps, or over each half of fewer than twenty. The source
        model predicts a sample of the last batch.

        >>> import driftlaw
        >>> adapter = driftlaw.adapt(driftlaw.load_model("wrn_16_1-cifar10"), "tent")
        >>> print(adapter.summary())
        TENT: 0 steps, 0 images
        adapted: 26 of 43 tensors, 928 of 175,066 parameters
        BatchNorm statistics: auto
        """
        with self._lock, torch.inference_mode(False), torch.no_grad():
            parameters, adapted = list(self.model.parameters()), self.trainable_parameters()
            training = [layer.training for layer in self.model.modules() if isinstance(layer, _BatchNorm)]
            statistics = getattr(self.config, "statistics", "batch" if any(training) else "stored")
            summary = Summary(
                method=self.title,
                steps=self.steps,
                images=0,
                adapted_tensors=len(adapted),
                tensors=len(parameters),
                adapted_parameters=sum(value.numel() for value in adapted),
                parameters=sum(value.numel() for value in parameters),
                statistics=statistics if training else "no BatchNorm layers",
            )
            if self.guard is not None:
                summary["guard"] = dict(self.guard.counts)
            if adapted and self.steps:
                distances = dict(zip(self.trainable_names, self.layer_distances().tolist(), strict=True))
                finite = {name: value for name, value in distances.items() if value < float("inf")}
                summary["largest_distances"] = dict(sorted(finite.items(), key=lambda item: -item[1])[:3])
            history, count = self._history, self._history.count
            if count and history.steps == self.steps:
                steps = range(min(RECENT, max(1, count // 2)))
                last = history.last[[(count - 1 - step) % RECENT for step in steps]].mean(dim=0)
                entropy, shares = last[0], last[1:]
                summary |= Summary(
                    images=history.images,
                    entropy=entropy.item(),
                    entropy_at_start=history.first[: len(steps), 0].mean().item(),
                    classes=len(shares),
                    predicted_classes=int((shares > 0).sum()),
                    most_predicted_class=int(shares.argmax()),
                    most_predicted_share=shares.max().item(),
                )
                if len(history.sample):  # a pool does not keep it when it switches to another stream
                    sample = history.sample.to(parameters[0].device) if parameters else history.sample
                    source = self.source_logits(sample)
                    agreement = diagnostics.agreement(history.logits.to(source.device), source).item()
                    summary |= Summary(source_agreement=agreement, compared_images=len(source))
            return summary


class Summary(dict[str, Any]):
    """Result of ``Adapter.summary``: a dict whose ``str`` and ``repr`` are a short text."""

    def __repr__(self) -> str:
        lines = [
            "{method}: {steps:,} steps, {images:,} images",
            "adapted: {adapted_tensors} of {tensors} tensors, {adapted_parameters:,} of {parameters:,} parameters",
            "BatchNorm statistics: {statistics}",
        ]
        if "entropy" in self:
            lines += [
                "entropy: {entropy:.3f} nats, {entropy_at_start:.3f} at the start",
                "predicted: {predicted_classes} of {classes} classes, class {most_predicted_class} most often "
                "({most_predicted_share:.0%})",
            ]
        if "source_agreement" in self:
            lines.append("agreement with the source model: {source_agreement:.0%} of {compared_images} images")
        if self.get("largest_distances"):
            largest = ", ".join(f"{name} {value:.2%}" for name, value in self["largest_distances"].items())
            lines.append(f"largest distances from the source model: {largest}")
        if "guard" in self:
            actions = ", ".join(f"{count} {name}" for name, count in self["guard"].items()) or "no action"
            lines.append(f"guard: {actions}")
        return "\n".join(lines).format(**self)

    __str__ = __repr__
