"""Batcher: one thread per adapter that collects requests into batches and is the only one to use the adapter."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch

from driftlaw.base import Adapter
from driftlaw.base.diagnostics import class_shares, diagnostics_to_json, mean_entropy
from driftlaw.dense import every_nth_pixel
from driftlaw.serving.decoding import Array
from driftlaw.serving.label_maps import LabelMap, predict_label_maps
from driftlaw.serving.settings import RequestError, ServerSettings
from driftlaw.serving.status import MAX_THUMBNAILS, SECONDS, BatchInfo, Event, Mode

logger = logging.getLogger(__name__)

Outputs = Array | list[LabelMap]
"""Logits (n, classes), or one label map per image. Logits per pixel are not kept."""


@dataclass(frozen=True)
class Answer:
    """Outputs for the images of a request, and the number of steps and the mode of the adapter after its batch."""

    outputs: Outputs
    step: int
    mode: Mode

    def predictions(self) -> Array:
        """Return the predicted classes: (n,), −1 where logits are not finite; or uint8 (n, h, w), 255 where not."""
        if isinstance(self.outputs, list):
            return np.stack([entry.labels for entry in self.outputs])
        return np.where(np.isfinite(self.outputs).all(1), self.outputs.argmax(1), -1)

    def summary(self) -> list[Any]:
        """Return the predicted class of every image, or the shares of all classes in its label map."""
        if isinstance(self.outputs, list):
            return [entry.shares.round(4).tolist() for entry in self.outputs]
        return list(self.predictions().tolist())


@dataclass(eq=False)
class Job:
    """Images (n, 3, h, w) of a request that wait for their batch, uint8 or float32 in [0, 1].

    Attributes:
        deadline: value of ``time.monotonic()`` after which it must not reach the model.
        answer: receives the result. A job that is cancelled before its batch starts never reaches the model.
    """

    images: Array
    tenant: str
    deadline: float
    arrived: float = field(default_factory=time.monotonic)
    answer: Future[Answer] = field(default_factory=Future)


class Batcher:
    """Collects the requests for one adapter into batches and predicts them in a thread of its own.

    A batch has images of one tenant only. It starts when it is full, or ``wait_ms`` after the arrival of its first
    request. Whatever else uses the adapter runs in the same thread, between two batches: see ``call``.

    Args:
        adapter: the adapter; nothing else may use it from now on.
        settings: settings of the server.

    Attributes:
        on_batch: called in the thread with every batch and the seconds that it took.
    """

    def __init__(self, adapter: Adapter, settings: ServerSettings) -> None:
        self.adapter, self.settings = adapter, settings
        self.on_batch: Callable[[BatchInfo, float], None] = lambda batch, seconds: None
        self.paused, self.images, self.steps = False, 0, adapter.steps
        self.batch_seconds = self.request_images = 0.0  # moving averages
        self.layer_weights: dict[str, float] = {}
        self.events: deque[Event] = deque(maxlen=200)
        self.batches: deque[BatchInfo] = deque(maxlen=20_000)  # of the last minutes
        self.last: tuple[list[Array], Outputs] = [], []  # images of the last batch, and their outputs
        self._waiting: dict[str, deque[Job]] = {}
        self._calls: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._closing = False
        self.changed = threading.Condition()  # protects everything above
        self._thread = threading.Thread(target=self._work, name="driftlaw-batcher", daemon=True)
        self._thread.start()

    @property
    def mode(self) -> Mode:
        """Whether predictions update the adapter, do not, or are those of the source model."""
        if self.paused:
            return "paused"
        guard = self.adapter.guard
        return "source" if guard is not None and guard.mode == "source" else "adapting"

    def expected_wait(self, requests: int) -> float:
        """Return the estimated seconds until so many requests are predicted, if they are like those before."""
        return math.ceil(requests * self.request_images / self.settings.batch_size) * self.batch_seconds

    def submit(self, job: Job) -> None:
        """Add a request to the queue."""
        with self.changed:
            if self._closing:
                raise RequestError(503, "The server is shutting down.")
            self._waiting.setdefault(job.tenant, deque()).append(job)
            self.changed.notify()

    def call(self, function: Callable[[], Any]) -> Future[Any]:
        """Run a function that uses the adapter between two batches; returns its result as a future."""
        result: Future[Any] = Future()
        with self.changed:
            self._calls.append((function, result))
            self.changed.notify()
        return result

    def close(self) -> None:
        """Predict what waits, then end the thread. Later requests are refused."""
        with self.changed:
            self._closing = True
            self.changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while (work := self._next()) is not None:
            try:
                work()
            except Exception:  # the thread must go on
                logger.exception("The batcher failed.")

    def _next(self) -> Callable[[], None] | None:
        """Wait for the next call or batch and return it; None: the batcher is closed and nothing waits."""
        with self.changed:
            while True:
                if self._calls:
                    return partial(_resolve, *self._calls.popleft())
                queues = [jobs for jobs in self._waiting.values() if jobs]
                if not queues:
                    if self._closing:
                        return None
                    self.changed.wait()
                    continue
                jobs = min(queues, key=lambda jobs: jobs[0].arrived)
                is_full = sum(len(job.images) for job in jobs) >= self.settings.batch_size
                left = jobs[0].arrived + self.settings.wait_ms / 1000 - time.monotonic()
                if is_full or self._closing or left <= 0:
                    return partial(self._predict, self._take(jobs))
                self.changed.wait(left)

    def _take(self, jobs: deque[Job]) -> list[Job]:
        """Remove the jobs of the next batch from their queue; expired and cancelled ones are left out."""
        batch: list[Job] = []
        size = 0
        while jobs and (not batch or size + len(jobs[0].images) <= self.settings.batch_size):
            job = jobs.popleft()
            if not job.answer.set_running_or_notify_cancel():
                continue
            if time.monotonic() > job.deadline:
                job.answer.set_exception(deadline_error())
                continue
            batch.append(job)
            size += len(job.images)
        return batch

    def _predict(self, batch: list[Job]) -> None:
        if not batch:
            return
        started = time.monotonic()
        try:
            outputs, diagnostics = self._step([job.images for job in batch])
        except Exception as error:
            logger.exception("The model failed on a batch of %d requests.", len(batch))
            for job in batch:
                job.answer.set_exception(RequestError(500, f"The model failed on this batch ({type(error).__name__})."))
            return
        self.steps, first, ended = self.adapter.steps, 0, time.monotonic()
        try:
            values = diagnostics.get("entropy"), diagnostics.get("class_shares")
            info = BatchInfo(time.time(), len(outputs), *values, [ended - job.arrived for job in batch])
            shown = 1 if isinstance(outputs, list) else MAX_THUMBNAILS
            images = [image for job in batch[-shown:] for image in job.images[-shown:]][-shown:]
            share = 0.2 if self.images else 1.0
            self.batch_seconds += share * (ended - started - self.batch_seconds)
            self.request_images += share * (len(outputs) / len(batch) - self.request_images)
            self._remember(info, diagnostics.get("layer_weights"), images, outputs[-len(images) :])
            self.on_batch(info, ended - started)
        finally:  # after the rest, so that a client that has its answer finds it in status and metrics
            for job in batch:
                job.answer.set_result(Answer(outputs[first : first + len(job.images)], self.steps, self.mode))
                first += len(job.images)

    def _step(self, arrays: list[Array]) -> tuple[Outputs, dict[str, Any]]:
        """Return outputs and diagnostics of a batch; the adapter is updated on it unless it is paused."""
        adapter, parts = self.adapter, [torch.from_numpy(array) for array in arrays]
        unit = torch.cat([part.float().div(255) if part.dtype == torch.uint8 else part for part in parts])
        device = next((value.device for value in adapter.model.parameters()), None)
        images = adapter.inputs.from_unit(unit.to(device), adapter.model)
        if self.paused:
            logits = adapter.predict(images)
            some = every_nth_pixel(logits)
            values: Mapping[str, Any] = {"entropy": mean_entropy(some), "class_shares": class_shares(some)}
        else:
            output = adapter.step(images)
            logits, values = output.logits, output.diagnostics
        outputs = logits.cpu().numpy() if logits.ndim == 2 else predict_label_maps(logits, images.shape[2:])
        return outputs, diagnostics_to_json(values)

    def _remember(self, info: BatchInfo, weights: Any, images: list[Array], outputs: Outputs) -> None:
        guard = self.adapter.guard
        with self.changed:
            self.images, self.last = self.images + info.images, (images, outputs)
            if weights is not None:
                names = self.adapter.diagnostic_labels()["layer_weights"]
                self.layer_weights = {n: w for n, w in zip(names, weights, strict=True) if w is not None}
            for event in guard.step_events if guard is not None and not self.paused else ():
                self.events.append(Event(info.time, event.step, event.action, event.reason))
            self.batches.append(info)
            while self.batches[0].time < info.time - SECONDS - 2:
                self.batches.popleft()


def _resolve(function: Callable[[], Any], result: Future[Any]) -> None:
    try:
        result.set_result(function())
    except Exception as error:
        result.set_exception(error)


def deadline_error() -> RequestError:
    """Return the error of a request whose deadline passed before its batch."""
    return RequestError(504, "The deadline of the request passed before it was predicted. Send it again later.")
