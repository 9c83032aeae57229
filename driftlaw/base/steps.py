"""Steps of an adapter: full batches, small batches that are collected, and predictions without an update."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from driftlaw.base.inputs import translate_errors
from driftlaw.base.small_batches import (
    BatchStatsSettings,
    CollectingWindow,
    ImageWindow,
    batch_norm_layers,
    lacks_variance,
    stored_statistics,
)
from driftlaw.base.state import AdapterState, attributes_of_type
from driftlaw.base.types import StepOutput
from driftlaw.errors import warn_user
from driftlaw.execution import Plan


class AdapterSteps(AdapterState):
    """How an adapter runs the hooks of its method on a batch. ``Adapter`` has the public calls."""

    draw: Callable[[Tensor], Plan]
    update: Callable[[Tensor, Plan], StepOutput]
    forward_logits: Callable[[Tensor], Tensor]

    def _dtype(self) -> torch.dtype | None:
        return next((value.dtype for value in self.model.parameters() if value.is_floating_point()), None)

    def _run(self, call: Callable[[Tensor], Any], images: Tensor) -> Any:
        batch = images if self.window is None else self.window.pad(images)
        generators = list(attributes_of_type(self, torch.Generator).values())
        context = self._executor.context(images, self._dtype() or images.dtype)
        with context, translate_errors(images, self.model, self.name):
            return self._executor.run(call, batch, self, generators)

    def _is_small(self, images: Tensor) -> bool:
        return isinstance(self.window, CollectingWindow) and self.window.is_small(images)

    def _step(self, images: Tensor) -> StepOutput:
        output: StepOutput = self._run(self._update_or_predict, images)
        if self.window is not None:
            self.window.append(images)
        if self.window is None or isinstance(self.window, CollectingWindow):
            return output
        return StepOutput(output.logits[-len(images) :], output.diagnostics)

    def _collect(self, images: Tensor) -> StepOutput:
        """Predict a small batch with running statistics, and update the model if enough images were collected."""
        window = cast("CollectingWindow", self.window)
        with torch.no_grad():
            logits = self._run(partial(self._predict_small, update_statistics=True), images)[-len(images) :]
        window.append(images)
        collected = window.collected()
        return StepOutput(
            logits, {} if collected is None else self._run(self._update_or_predict, collected).diagnostics
        )

    def _update_or_predict(self, images: Tensor) -> StepOutput:
        least = getattr(self.config, "minimum_batch", 1)
        if len(images) < least:
            what = "The batch with its window" if type(self.window) is ImageWindow else "The batch"
            return self._predict_only(images, f"{what} has {len(images)} images, fewer than minimum_batch={least}.")
        try:
            output: StepOutput = self._executor.step(self.update, images, self.draw(images), self.model)
        except ValueError as error:
            if not lacks_variance(error):
                raise
            return self._predict_only(images, "A single value per channel has no variance (feature maps of 1×1).")
        self.steps += 1
        uses_batch_only = isinstance(self.config, BatchStatsSettings) and self.window is None
        if len(images) == 1 and uses_batch_only and batch_norm_layers(self.model):
            self._warn_once("small batch", "The statistics of a single image are poor. Set statistics='auto'.")
        return output

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
