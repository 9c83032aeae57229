"""Steps of an adapter: full batches, small batches that are collected, and predictions without an update."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from driftlaw.base.inputs import translate_errors
from driftlaw.base.small_batches import (
    BatchStatsSettings,
    CollectingWindow,
    ImageWindow,
    lacks_variance,
    stored_statistics,
)
from driftlaw.base.state import AdapterState, attributes_of_type, restore, snapshot
from driftlaw.base.types import StepOutput
from driftlaw.errors import warn_user
from driftlaw.execution import Plan
from driftlaw.execution.batch_statistics import batch_norm_layers, mix_batch_stats
from driftlaw.execution.split_pass import split_passes
from driftlaw.guard import Transaction
from driftlaw.guard.transaction import PendingFlags, TensorCopies


class NotFiniteError(Exception):
    """The logits of some images of a batch are not finite; the step was undone."""


def check_finite(logits: Tensor) -> None:
    """Raise NotFiniteError if logits on a CPU are not finite."""
    if logits.device.type == "cpu" and not bool(logits.isfinite().all()):
        raise NotFiniteError


class AdapterSteps(AdapterState):
    """How an adapter runs the hooks of its method on a batch. ``Adapter`` has the public calls."""

    _transaction: Transaction
    _updates: PendingFlags
    draw: Callable[[Tensor], Plan]
    update: Callable[[Tensor, Plan], StepOutput]
    forward_logits: Callable[[Tensor], Tensor]
    source_logits: Callable[..., Tensor]

    def _dtype(self) -> torch.dtype | None:
        return next((value.dtype for value in self.model.parameters() if value.is_floating_point()), None)

    def _run(self, call: Callable[[Tensor], Any], images: Tensor) -> Any:
        batch = images if self.window is None else self.window.pad(images)
        generators = list(attributes_of_type(self, torch.Generator).values())
        context = self._executor.context(images, self._dtype() or images.dtype)
        with context, translate_errors(images, self.model, self.name), split_passes(self.ranks):
            return self._executor.run(call, batch, self, generators)

    def _is_small(self, images: Tensor) -> bool:
        """Return True if a batch is predicted with running statistics and collected for an update."""
        return isinstance(self.window, CollectingWindow) and self.window.is_small(images) and not self.is_dense(images)

    def is_dense(self, images: Tensor) -> bool:
        """Return True if the model returns logits of several pixels per image.

        The first call makes a forward pass of the source model to find out. If it does, ``statistics="auto"`` becomes
        ``"adaptive"``: a frame has many pixels, so that few frames need no window.
        """
        if self._source.is_dense is None:
            self._source.is_dense = self.source_logits(images).shape[2:].numel() > 1
            if self._source.is_dense and isinstance(self.window, CollectingWindow):
                self.window.clear()
                for network in self.children():
                    mix_batch_stats(network, "adaptive")
        return self._source.is_dense

    def batches_per_update(self, images: Tensor) -> int:
        """Return how many batches of this size are collected for one update; 1 if they are not small."""
        return -(-cast("CollectingWindow", self.window).target // len(images)) if self._is_small(images) else 1

    def _attempt(self, images: Tensor) -> StepOutput:
        """Predict a batch and update the model. If this fails, nothing has changed.

        Raises:
            NotFiniteError: the logits of some images are not finite. On a GPU they are not checked, because that would
                wait for the step; the update is undone there as well.
        """
        if self._is_small(images):
            return self._collect(images)
        output: StepOutput = self._run(self._update_or_predict, images)
        if not isinstance(output, StepOutput):  # of a user's method
            return output
        if isinstance(self.window, ImageWindow) and not isinstance(self.window, CollectingWindow):
            output = StepOutput(output.logits[-len(images) :], output.diagnostics)
        if self.window is not None and not self._source.is_dense:
            self.window.append(images)
        return output

    def _collect(self, images: Tensor) -> StepOutput:
        """Predict a small batch with running statistics, and update the model if enough images were collected."""
        window, before = cast("CollectingWindow", self.window), TensorCopies()
        statistics = {name: value for name, value in window.named_buffers() if name != "images"}
        before.save(statistics)
        try:
            with torch.no_grad():
                logits = self._run(partial(self._predict_small, update_statistics=True), images)[-len(images) :]
            check_finite(logits)
            diagnostics = self._update_on(window.collected(images))
        except BaseException:
            before.restore(statistics)
            raise
        window.append(images)
        return StepOutput(logits, diagnostics)

    def _update_on(self, collected: Tensor | None) -> Mapping[str, Tensor | float]:
        """Update the model on collected images, if there are any; returns diagnostics."""
        try:
            return {} if collected is None else self._run(self._update_or_predict, collected).diagnostics
        except NotFiniteError:  # of images whose predictions were finite when they arrived
            return {}

    def _update_or_predict(self, images: Tensor) -> StepOutput:
        least = getattr(self.config, "minimum_batch", 1)
        if len(images) < least:
            what = "The batch with its window" if type(self.window) is ImageWindow else "The batch"
            return self._predict_only(images, f"{what} has {len(images)} images, fewer than minimum_batch={least}.")
        if self.guard is not None and self._transaction.scale != self.guard.scale:
            self._transaction.set_scale(self.guard.scale)
        try:
            with self._undo_first_step():
                output, kept = self._executor.step(self._transact, images, self.draw(images), self.model)
                if isinstance(output, StepOutput):
                    check_finite(output.logits)
        except ValueError as error:
            if not lacks_variance(error):
                raise
            return self._predict_only(images, "A single value per channel has no variance (feature maps of 1×1).")
        self.steps += 1
        self._updates.add(kept)
        depends_on_batch = isinstance(self.config, BatchStatsSettings) and self.config.statistics in ("batch", "mixed")
        if len(images) == 1 and depends_on_batch and batch_norm_layers(self.model):
            self._warn_once("small batch", "The statistics of a single image are poor. Set statistics='auto'.")
        return cast("StepOutput", output)

    @contextmanager
    def _undo_first_step(self) -> Iterator[None]:
        """Context manager that restores everything if the first step fails, because its ``draw`` may create state."""
        if self.steps:
            yield
            return
        before, images = snapshot(self), self.window.get_extra_state() if self.window is not None else {}
        try:
            yield
        except BaseException:
            restore(self, before)
            if self.window is not None:
                self.window.set_extra_state(images)
            raise

    def _transact(self, images: Tensor, plan: Plan) -> tuple[StepOutput, Tensor]:
        return self._transaction.run(self, partial(self.update, images, plan))

    def tensors_before_update(self) -> dict[str, Tensor]:
        """Return copies of what a step may change, by name, from before the last update; empty before the first."""
        return self._transaction.before.copies

    def uses_batch_statistics(self) -> bool:
        """Return True if BatchNorm layers of the model use the statistics of the batch."""
        return any(layer.training for layer in batch_norm_layers(self.model))

    @torch.no_grad()
    def _predict_only(self, images: Tensor, reason: str) -> StepOutput:
        self._warn_once("small batch", f"{reason} The model predicted without updating.")
        return StepOutput(self._predict(images))

    def _predict_small(self, images: Tensor, update_statistics: bool = False) -> Tensor:
        """Return ``forward_logits`` with running statistics of recent images."""
        window = cast("CollectingWindow", self.window)
        eager = self._executor.eager(self.model) if self._executor.compiled else nullcontext()  # it uses hooks
        key = "small batch", update_statistics, window.outdated
        with eager, window.running_statistics(batch_norm_layers(self), len(images), update=update_statistics):
            logits: Tensor = self._executor.graphs.run(key, self._predict, images)
        return logits

    def _predict(self, images: Tensor) -> Tensor:
        """Return ``forward_logits``, with stored statistics if the images have none of their own."""
        try:
            return self.forward_logits(images)
        except ValueError as error:
            if not lacks_variance(error):
                raise
        with stored_statistics(self):
            return self.forward_logits(images)

    def _warn_once(self, topic: str, text: str) -> None:
        if topic not in self._warned:
            self._warned.add(topic)
            warn_user(text)
