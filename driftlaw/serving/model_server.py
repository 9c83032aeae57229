"""Model server: the adapters of all tenants behind their batchers, without HTTP."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from driftlaw.base import Adapter
from driftlaw.guard.snapshots import SnapshotFolder
from driftlaw.label_colors import CLASS_COLORS
from driftlaw.serving.batcher import Answer, Batcher, Job, Outputs, deadline_error
from driftlaw.serving.decoding import Array, describe, to_image
from driftlaw.serving.label_maps import LabelMap
from driftlaw.serving.network_input import NetworkInput
from driftlaw.serving.settings import RequestError, ServerSettings
from driftlaw.serving.status import Event, Status, Thumbnail, data_uri, make_series

OVERLAY, THUMBNAIL = (320, 320), (96, 96)  # largest width and height of images in a status
ACTIONS = ("pause", "resume", "reset", "rollback")  # of administrators


class ModelServer:
    """The adapters of a server, one or one per tenant, with their queues.

    Args:
        adapters: by tenant; one with an empty name if all share it. See ``ServerSettings.adapter_names``.
        settings: settings of the server.
        name: name of the model in URLs and answers.
        class_names: one name per class; numbers are used if their number is another.
        image_size: size of the images that the network receives.
    """

    def __init__(
        self,
        adapters: Mapping[str, Adapter],
        settings: ServerSettings,
        *,
        name: str,
        class_names: Sequence[str],
        image_size: NetworkInput,
    ) -> None:
        self.settings, self.name, self.image_size = settings, name, image_size
        self.started, self.draining = time.monotonic(), False
        self.pending: Counter[str] = Counter()  # requests in progress, by tenant
        for adapter in adapters.values():  # the first prediction, which is slower, before the first request
            device = next((value.device for value in adapter.model.parameters()), None)
            logits = adapter.predict(torch.zeros(2, 3, *image_size[:2], device=device))
        numbers = [str(index) for index in range(logits.shape[1])]
        self.class_names = list(class_names) if len(class_names) == len(numbers) else numbers
        self.batchers = {owner: Batcher(adapter, settings) for owner, adapter in adapters.items()}

    def batcher(self, tenant: str) -> Batcher:
        """Return the batcher of a tenant."""
        return self.batchers[tenant if self.settings.separate_adapters else ""]

    async def predict(self, job: Job) -> Answer:
        """Return the answer for checked images.

        Raises:
            RequestError: the deadline passed before the batch started, or the model failed.
        """
        self.batcher(job.tenant).submit(job)
        answer = asyncio.wrap_future(job.answer)
        await asyncio.wait([answer], timeout=max(0.0, job.deadline - time.monotonic()))
        if not answer.done() and job.answer.cancel():
            raise deadline_error()
        return await answer

    async def act(self, action: str, tenant: str) -> dict[str, Any]:
        """Pause, resume, reset or roll back the adapter of a tenant, between two batches."""
        batcher = self.batcher(tenant)

        def run() -> None:
            reason = "The administrator requested it."
            if action in ("pause", "resume"):
                batcher.paused = action == "pause"
            else:
                reason = (_reset if action == "reset" else _rollback)(batcher.adapter)
            with batcher.changed:
                if action == "reset":
                    batcher.layer_weights = {}
                batcher.steps = batcher.adapter.steps
                batcher.events.append(Event(time.time(), batcher.steps, action, reason))

        await asyncio.wrap_future(batcher.call(run))
        return {"mode": batcher.mode, "step": batcher.steps}

    def close(self) -> None:
        """Predict what waits, save the state of every adapter that has a folder for it, and end the threads."""
        self.draining = True
        for batcher in self.batchers.values():
            batcher.close()
            if (folder := _folder(batcher.adapter)) is not None:
                folder.save(batcher.adapter.steps, batcher.adapter.state_dict())

    def status(self, tenant: str) -> Status:
        """Return what ``GET /v1/status`` returns."""
        batcher = self.batcher(tenant)
        guard, folder, names = batcher.adapter.guard, _folder(batcher.adapter), self.class_names
        with batcher.changed:
            (images, outputs), events, batches = batcher.last, list(batcher.events), list(batcher.batches)
            layer_weights, steps, count = batcher.layer_weights, batcher.steps, batcher.images
        colors = CLASS_COLORS[: len(names) if self.image_size.is_dense else 0]
        return Status(
            model=self.name,
            method=batcher.adapter.name,
            classes=len(names),
            class_names=names,
            class_colors=[f"#{bytes(color).hex()}" for color in colors],
            image_size=self.image_size[:2],
            tenant=tenant if self.settings.separate_adapters else "",
            tenants=list(self.settings.tenants),
            mode=batcher.mode,
            steps=steps,
            images=count,
            uptime=round(time.monotonic() - self.started, 3),
            queue=sum(self.pending.values()),
            queue_limit=self.settings.queue,
            layer_weights=layer_weights,
            guard_counts=dict(guard.counts) if guard is not None else {},
            guard_scale=guard.scale if guard is not None else None,
            can_roll_back=folder is not None and folder.has_before(steps),
            series=make_series(batches, time.time()),
            events=events,
            last_batch=self._thumbnails(images, outputs),
        )

    def _thumbnails(self, images: list[Array], outputs: Outputs) -> list[Thumbnail]:
        thumbnails = []
        for image, output, row in zip(images, outputs, describe(outputs, self.class_names), strict=True):
            picture = to_image(image)
            picture.thumbnail(OVERLAY if isinstance(output, LabelMap) else THUMBNAIL)
            shown = output.overlay(picture) if isinstance(output, LabelMap) else picture
            row["prediction"] = row.pop("class", None)
            thumbnails.append(Thumbnail(image=data_uri(shown), **row))
        return thumbnails


def _folder(adapter: Adapter) -> SnapshotFolder | None:
    return adapter.guard.folder if adapter.guard is not None else None


def _reset(adapter: Adapter) -> str:
    adapter.reset()
    if (folder := _folder(adapter)) is not None:
        folder.save(0, adapter.state_dict())  # deletes later ones, from which a restart would continue
    return "The adapter is the source model again."


def _rollback(adapter: Adapter) -> str:
    """Load the newest snapshot from before the current step, and delete newer ones."""
    folder, before = _folder(adapter), adapter.steps
    if folder is None or not folder.load_into(adapter, before=before):
        raise RequestError(409, f"There is no snapshot from before step {before}. Use reset.")
    folder.save(adapter.steps, adapter.state_dict())
    return f"From step {before} to the snapshot of step {adapter.steps}."
