"""Evaluator: runs an adapter over a stream and writes a record."""

import os
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from functools import partial
from operator import length_hint
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field

from driftlaw._deprecated import renamed_keywords
from driftlaw.base import Adapter, Batch, Stream
from driftlaw.base.diagnostics import diagnostics_to_json
from driftlaw.checkpoints import deferred_interrupts
from driftlaw.datasets import FolderImages
from driftlaw.errors import DataError, UsageError, warn_user
from driftlaw.evaluation.cost import count_cost, count_forward
from driftlaw.evaluation.metrics import OnlineMetrics
from driftlaw.evaluation.predictions import IGNORE_INDEX, check_label_maps, check_labels, compare
from driftlaw.evaluation.resume import ResumableRecord
from driftlaw.files import imported_file
from driftlaw.hardware import environment, load_average, to_device
from driftlaw.models import weights_sha256
from driftlaw.profiling import is_gpu_shared, peak_bytes, timed
from driftlaw.records import RunRecord, read_record
from driftlaw.records.jsonl import Line, content_hash
from driftlaw.records.run_record import FORMAT
from driftlaw.settings import Settings, parse
from driftlaw.streams import LoaderStream, make_stream


class RunArguments(Settings):
    """Arguments of ``run`` that are plain values."""

    reset_on: Literal["never", "domain"]
    metrics: tuple[str, ...]
    record: Path | None
    command: str
    checkpoint_seconds: float = Field(allow_inf_nan=True)
    ignore_index: int


@renamed_keywords(measures="metrics", sink="record")
def run(
    stream: Any,
    adapter: Adapter,
    *,
    reset_on: Literal["never", "domain"] = "never",
    metrics: Collection[str] = (),
    record: str | Path | None = None,
    command: str = "",
    checkpoint_seconds: float = 30.0,
    ignore_index: int = IGNORE_INDEX,
    progress: Callable[[Line], None] = lambda line: None,
) -> RunRecord:
    """Evaluate an adapter on a stream and return the record of the run.

    Ctrl-C and SIGTERM end the current batch and save a checkpoint first. The same call then resumes the run, and the
    record ends with the same bytes as without the interruption, except for its timing fields. Batches that were
    evaluated before are read again and skipped. This needs a loader that returns the same batches every time: a loader
    whose first batch differs, because it shuffles, is refused. An iterator, such as a generator, cannot be resumed.

    Args:
        stream: a stream, a DataLoader, or whatever else ``make_stream`` accepts. Labels are compared with the
            predictions and never shown to the adapter. Without labels the record contains no errors. Images of a loader
            are moved to the adapter's device and otherwise not changed. Labels are (n,), or for segmentation label maps
            (n, h, w) of the size of the images.
        adapter: adapter to evaluate.
        reset_on: ``domain`` resets the adapter to the source model whenever a new domain starts.
        metrics: metrics besides error and cost: ``calibration``, ``forgetting``, ``drift``, ``agreement``, ``frames``.
        record: JSONL file to write. A finished record of the same run is returned unchanged, an unfinished one is
            resumed, and the record of a different run is an error.
        command: command line to store in the record's header.
        checkpoint_seconds: seconds between checkpoints.
        ignore_index: label of pixels without a class in label maps of a loader. Negative labels have no class either.
        progress: called with the line of each batch.

    Raises:
        UsageError: if an argument is not what is expected, the stream has no batches, or a label is not among the
            model's classes.

    >>> import driftlaw
    >>> adapter = driftlaw.adapt(driftlaw.load_model("wrn_16_1-cifar10"), "norm")
    >>> run(driftlaw.make_stream("embedded", limit=20), adapter).finished
    True
    """
    given: dict[str, Any] = {
        "reset_on": reset_on,
        "metrics": metrics,
        "record": None if isinstance(record, str) and not record else record,
        "command": command,
        "checkpoint_seconds": checkpoint_seconds,
        "ignore_index": ignore_index,
    }
    arguments = parse(RunArguments, given, where="run()")
    if not isinstance(adapter, Adapter):
        raise UsageError(f"Expected an adapter, found {type(adapter).__name__}. driftlaw.adapt(model) creates one.")
    stream = stream if hasattr(stream, "recipe") else make_stream(stream)
    path = arguments.record
    if path is not None and os.path.exists(path) and not getattr(stream, "repeatable", True):
        raise UsageError(
            f"{path} already contains a record, and a run on an iterator such as a generator cannot be resumed. Choose "
            "another path or delete the file, or pass a DataLoader."
        )
    evaluation = _Evaluation(stream, adapter, arguments)
    resumable = ResumableRecord.on_ranks(path, evaluation.header(command), adapter, evaluation.device)
    if path is not None and resumable.finished:
        read = partial(read_record, path)
        return read() if adapter.ranks is None else adapter.ranks.on_first(read)
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True), resumable.open():
        closing = evaluation.run(resumable, checkpoint_seconds, progress)
    return RunRecord(resumable.header, resumable.lines, closing, path)


class _Evaluation:
    """One evaluation: makes the header, the line of each batch, and the closing line."""

    def __init__(self, stream: Stream, adapter: Adapter, arguments: RunArguments) -> None:
        self.stream, self.adapter, self.reset_on = stream, adapter, arguments.reset_on
        self.ignore_index = arguments.ignore_index
        self.device = next(adapter.model.parameters()).device
        self.dtype = next(adapter.model.parameters()).dtype
        self.metrics = OnlineMetrics(arguments.metrics, stream, adapter, self.ignore_index)
        self.lines: list[Line] = []
        self.costs: dict[str, Line] = {}  # by kind of step
        self.logit_shapes: dict[torch.Size, torch.Size] = {}  # by height and width of the images

    def header(self, command: str) -> Line:
        recipe, adapter, info = self.stream.recipe(), self.adapter, getattr(self.adapter.model, "info", {})
        train_data: Any = getattr(adapter, "train_data", None) if adapter.needs_train_data else None
        return {
            "format": FORMAT,
            "command": command,
            **environment(self.device),
            "seed": adapter.seed,
            "method": adapter.name,
            "title": adapter.title,
            **({"method_file": file} if (file := imported_file(type(adapter).__module__)) else {}),
            "needs_source": adapter.needs_train_data,
            **({} if train_data is None else {"source": train_data.metadata()}),
            "settings": adapter.config.model_dump(mode="json"),
            **({} if adapter.ranks is None else {"ranks": adapter.ranks.size}),
            "execution": adapter.execution_info(),
            "reset_on": self.reset_on,
            **({} if self.ignore_index == IGNORE_INDEX else {"ignore_index": self.ignore_index}),
            **self.metrics.header(),
            "stream": recipe,
            "stream_sha256": content_hash(recipe),
            "model": {
                "name": info.get("name", type(adapter.model).__name__),
                "weights": info.get("weights"),
                **({"file_sha256": info["file_sha256"]} if "file_sha256" in info else {}),
                "parameters": sum(value.numel() for value in adapter.model.parameters()),
                "sha256": weights_sha256(adapter.model),
            },
            "fact_labels": adapter.diagnostic_labels()
            | ({"layer_distance": adapter.trainable_names} if adapter.monitor.every else {}),
            "batches": None if (length := length_hint(self.stream, -1)) < 0 else length,
            "timing": {"started": datetime.now(UTC).isoformat(timespec="seconds")},
        }

    def run(self, record: ResumableRecord, checkpoint_seconds: float, progress: Callable[[Line], None]) -> Line:
        """Evaluate the batches that the record does not have yet, and return the closing line."""
        lines = self.lines = record.lines
        self.costs = {line.get("kind", "step"): line["cost"] for line in lines if "cost" in line}
        segment = lines[-1]["segment"] if lines else -1
        only_in_first_line = {} if lines else self.metrics.before_stream()
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        shared_gpu, load = is_gpu_shared(self.device), load_average()
        interrupt: BaseException | None = None
        with deferred_interrupts() as pending_interrupt:
            batches = record.read_batches(self.stream.iter_from(len(lines)), pending_interrupt)
            try:
                for batch, ends_domain in self.metrics.with_domain_ends(batches):
                    segment += batch.starts_domain
                    line = self._step(batch, segment, ends_domain=ends_domain) | only_in_first_line
                    line |= self.metrics.of_domain(ended=ends_domain)
                    only_in_first_line = {}
                    record.append(line)
                    progress(line)
                    if interrupt := self._interrupt(pending_interrupt()):
                        raise interrupt
                    record.save_if_due(checkpoint_seconds)
            except BaseException as error:
                if error in (interrupt, pending_interrupt()):  # raised between two steps
                    record.save_if_due(0.0)
                if isinstance(error, RuntimeError) and str(error).startswith("DataLoader worker"):
                    raise DataError(
                        f"A process that reads images has ended: {error} Run the same command again to resume. If "
                        "memory is short, use fewer workers."
                    ) from error
                raise
            finally:
                batches.close()  # the traceback of an error would keep the workers of a DataLoader alive
            if not lines:
                raise UsageError("The stream has no batches. Check the dataset and the loader.")
            closing = self._closing(record, shared_gpu, load)
            record.finish(closing)
        return closing

    def _interrupt(self, own: BaseException | None) -> BaseException | None:
        """Return the interrupt of this process; with a group, all ranks stop after the same batch."""
        if self.adapter.ranks is not None and any(self.adapter.ranks.exchange(own is not None)):
            return own or KeyboardInterrupt()
        return own

    def _step(self, batch: Batch, segment: int, *, ends_domain: bool) -> Line:
        images, labels = batch.images, batch.labels
        self.metrics.check_labels(labels)
        if self.lines and (self.lines[0]["wrong"] is None) != (labels is None):
            raise UsageError(
                f"Some batches have labels and batch {batch.index} differs. Expected labels in all or none."
            )
        check_label_maps(batch)
        images = to_device(images.to(self.dtype) if images.is_floating_point() else images, self.device)
        if self.adapter.inputs.normalized and not isinstance(self.stream, LoaderStream):
            images = self.adapter.inputs.from_unit(images, self.adapter.model)
        if labels is not None:  # checked before the step, so that nothing changes if they are wrong
            size = images.shape[2:]
            if size not in self.logit_shapes:
                self.logit_shapes[size] = count_forward(self.adapter, images)[0].shape
            check_labels(labels, self.logit_shapes[size], self.ignore_index)
        if self.reset_on == "domain" and batch.starts_domain and batch.index:
            self.adapter.reset()
        kind = self.adapter.step_kind()
        if is_new := kind not in self.costs:
            self.costs[kind] = count_cost(self.adapter, images, is_first=not self.lines)
        whole = {} if self.adapter.ranks is None else {"whole": True}  # a user's method may have a step() without it
        with timed(self.device) as timer:
            output = self.adapter.step(images, **whole)
        compared = compare(output.logits, labels, self.ignore_index)
        folders = self.stream.num_classes if isinstance(getattr(self.stream, "dataset", None), FolderImages) else 0
        if not self.lines and 0 < folders < (classes := output.logits.shape[1]):
            warn_user(
                f"The folder has {folders} class folders, but the model has {classes} classes. Label i is the i-th "
                "folder by name, so errors may be wrong. Add a folder per class, or use images without sub-folders."
            )
        domain = batch.domain
        return {
            "batch": batch.index,
            "segment": segment,
            "domain": {"name": domain.name, "severity": domain.severity, "round": domain.round},
            "images": len(images),
            **compared,
            **({} if kind == "step" else {"kind": kind}),
            "facts": diagnostics_to_json(output.diagnostics),
            **({"guard": events} if (events := self._guard_events()) else {}),
            **({} if labels is None else self.metrics.of_batch(output.logits, labels)),
            **(self.metrics.of_frame(batch, images, output.logits, self.lines) if ends_domain else {}),
            **({"cost": self.costs[kind]} if is_new else {}),
            "timing": {"seconds": timer.seconds},
        }

    def _guard_events(self) -> list[Line]:
        guard = self.adapter.guard
        return [{"action": event.action, "reason": event.reason} for event in guard.step_events] if guard else []

    def _closing(self, record: ResumableRecord, shared_gpu: bool, load: float | None) -> Line:
        loads = {"start": load, "end": load_average(), "cpus": os.cpu_count()}
        lines, so_far = record.lines, RunRecord(record.header, record.lines)
        peak = peak_bytes(self.device)  # read first: the clean images below are no part of the stream
        kinds = [line.get("kind", "step") for line in lines]
        mean_flops = sum(self.costs[kind]["step_flops_per_image"] for kind in kinds) // len(kinds)
        return {
            "closing": True,
            "mean_error": None if so_far.mean_error is None else round(so_far.mean_error, 6),
            "error_by_domain": {name: round(error, 6) for name, error in so_far.error_by_domain.items()},
            **so_far.iou_summary(),
            **({"not_finite": so_far.not_finite} if so_far.not_finite else {}),
            **self.metrics.after_stream(lines[0]),
            **({"guard": dict(self.adapter.guard.counts)} if self.adapter.guard else {}),
            "cost": {**self.costs[kinds[0]], "step_flops_per_image": mean_flops},
            "timing": {
                "seconds": sum(line["timing"]["seconds"] for line in lines),
                "seconds_per_step": so_far.seconds_per_step,
                "peak_bytes": peak,
                **({"shared_gpu": True} if shared_gpu or is_gpu_shared(self.device) else {}),
                **({} if load is None else {"load_average": loads}),
            },
        }
