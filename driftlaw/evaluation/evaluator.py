"""The one loop: a stream in, a record out; a killed run goes on where it was and ends in the same bytes."""

from __future__ import annotations

import copy
import math
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from driftlaw.base import Adapter, Batch, Stream
from driftlaw.checkpoints import load_checkpoint, save_checkpoint
from driftlaw.errors import UsageError
from driftlaw.evaluation.metrics import Measures
from driftlaw.models import weights_sha256
from driftlaw.profiling import as_input, count_flops, environment, peak_bytes, shares_gpu, timed
from driftlaw.records import RecordWriter, RunRecord, read_record
from driftlaw.records.jsonl import content_hash
from driftlaw.records.run_record import FORMAT
from driftlaw.records.writer import existing_lines

Line = dict[str, Any]
FREE_TO_CHANGE = ("timing", "command", "commit")  # what may differ between a run and the same run resumed


def run(
    stream: Stream,
    adapter: Adapter,
    *,
    reset_on: Literal["never", "domain"] = "never",
    measures: Collection[str] = (),
    sink: str | Path | None = None,
    command: str = "",
    checkpoint_seconds: float = 30.0,
    progress: Callable[[Line], None] = lambda line: None,
) -> RunRecord:
    """Answer a whole stream and return the record of it.

    Args:
        stream: labelled batches; the labels are compared with the answers and never shown to the adapter.
        adapter: what answers and learns.
        reset_on: ``domain`` takes the adapter back to the source at every shift.
        measures: what to measure beside error and cost: some of ``driftlaw.evaluation.metrics.MEASURES``.
        sink: the JSONL file to write. A finished record of the same run is returned as it is, an unfinished one is
            gone on with, another run's is refused.
        command: what the header says the run was started with.
        checkpoint_seconds: how much work a kill may cost.
        progress: called with each batch's line.
    """
    if reset_on not in ("never", "domain"):
        raise UsageError(f"reset_on = {reset_on!r}: expected «never» or «domain»")
    _check_kinds(stream, adapter)
    under_way = _Run(stream, adapter, reset_on, measures, Path(sink) if sink else None, command)
    if under_way.finished_already:
        return read_record(Path(sink))
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
        under_way.to_the_end(checkpoint_seconds, progress)
    return RunRecord(under_way.header, under_way.lines, under_way.closing, under_way.sink)


def _check_kinds(stream: Any, adapter: Any) -> None:
    if not hasattr(stream, "recipe"):
        raise UsageError(
            f"expected a stream, found {type(stream).__name__}: driftlaw.make_stream makes one, and your own batches "
            "become one in a subclass of driftlaw.base.Stream; without labels call the adapter on them"
        )
    if not isinstance(adapter, Adapter):
        raise UsageError(f"expected an adapter, found {type(adapter).__name__}: driftlaw.adapt(model) makes one")


class _Run:
    """A run under way: its header, the lines so far, and where they go."""

    def __init__(
        self,
        stream: Stream,
        adapter: Adapter,
        reset_on: str,
        measures: Collection[str],
        sink: Path | None,
        command: str,
    ) -> None:
        self.stream, self.adapter, self.reset_on, self.sink = stream, adapter, reset_on, sink
        self.device = next(adapter.model.parameters()).device
        self.dtype = next(adapter.model.parameters()).dtype
        self.measures = Measures(measures, stream, adapter)
        self.header = self._header(command)
        self.lines: list[Line] = []
        self.closing: Line | None = None
        self.costs: dict[str, Line] = {}
        self.finished_already = False
        self.saved_at = time.monotonic()
        if sink is not None:
            self._take_up(existing_lines(sink))

    @property
    def checkpoint(self) -> Path:
        """Where the adapter's state lies while the run is under way."""
        assert self.sink is not None
        return self.sink.with_name(self.sink.name + ".checkpoint.pt")

    def _header(self, command: str) -> Line:
        recipe = self.stream.recipe()
        adapter = self.adapter
        return {
            "format": FORMAT,
            "command": command,
            **environment(self.device),
            "seed": adapter.seed,
            "method": adapter.name,
            "title": adapter.title,
            "needs_source": adapter.needs_train_data,
            **(
                {"source": adapter.train_data.facts()}
                if adapter.needs_train_data and hasattr(adapter, "train_data")
                else {}
            ),
            "settings": adapter.config.model_dump(mode="json"),
            "execution": adapter.execution_info(),
            "reset_on": self.reset_on,
            **self.measures.header(),
            "stream": recipe,
            "stream_sha256": content_hash(recipe),
            "model": _model_facts(adapter.model),
            "fact_labels": adapter.diagnostic_labels(),
            "batches": len(self.stream),
            "timing": {"started": datetime.now(UTC).isoformat(timespec="seconds")},
        }

    def _take_up(self, lines: list[Line]) -> None:
        """Go on with what an earlier try of this run left behind; refuse what another run left."""
        if not lines:
            return
        if _identity(lines[0]) != _identity(self.header):
            own, found = _identity(self.header), _identity(lines[0])
            differing = [key for key in own | found if own.get(key) != found.get(key)]
            raise UsageError(
                f"{self.sink} holds the record of another run (differing: {', '.join(differing)}): "
                "choose another place, or delete it"
            )
        self.finished_already = bool(lines[-1].get("closing"))
        if not self.finished_already and self.checkpoint.exists():
            state = load_checkpoint(self.checkpoint, self.device)
            if len(lines) > state["batches"]:
                self.adapter.load_state_dict(state["adapter"])
                self.header, self.lines = lines[0], lines[1 : 1 + state["batches"]]
                self.costs = {line.get("kind", "step"): line["cost"] for line in self.lines if "cost" in line}

    def to_the_end(self, checkpoint_seconds: float, progress: Callable[[Line], None]) -> None:
        """Answer what is left of the stream."""
        segment = self.lines[-1]["segment"] if self.lines else -1
        at_first = {} if self.lines else self.measures.before_stream()
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        self.shared = shares_gpu(self.device)
        with self._writer() as write, _interrupts_wait() as interrupted:
            for batch, ends_domain in self.measures.with_ends(self.stream.iter_from(len(self.lines))):
                segment += batch.starts_domain
                line = self._answer(batch, segment) | at_first | self.measures.of_domain(ended=ends_domain)
                at_first = {}
                self.lines.append(line)
                write(line)
                progress(line)
                due = time.monotonic() - self.saved_at >= checkpoint_seconds
                if self.sink is not None and (due or interrupted()):
                    self._save()
                if interrupted():
                    raise KeyboardInterrupt
            self.closing = self._closing()
            write(self.closing)
        if self.sink is not None:
            self.checkpoint.unlink(missing_ok=True)

    def _answer(self, batch: Batch, segment: int) -> Line:
        if batch.labels is None:
            raise UsageError("a run measures error and this stream has no labels: call the adapter on it yourself")
        if self.reset_on == "domain" and batch.starts_domain and batch.index:
            self.adapter.reset()
        images = as_input(batch.images.to(self.dtype), self.device)
        kind = self.adapter.step_kind()
        cost = {} if kind in self.costs else {"cost": self._cost(images, kind)}
        with timed(self.device) as watch:
            output = self.adapter.step(images)
        answered, highest = output.logits.shape[1], int(batch.labels.max())
        if highest >= answered:
            raise UsageError(
                f"the network answers {answered} classes, and there is a label {highest}: take a network that was "
                "trained on these images, or other images"
            )
        wrong = int((output.logits.argmax(1) != batch.labels.to(self.device)).sum())
        domain = batch.domain
        return {
            "batch": batch.index,
            "segment": segment,
            "domain": {"name": domain.name, "severity": domain.severity, "round": domain.round},
            "images": len(images),
            "wrong": wrong,
            **({} if kind == "step" else {"kind": kind}),
            "facts": diagnostics_to_json(output.diagnostics),
            **self.measures.of_answers(output.logits, batch.labels),
            **cost,
            "timing": {"seconds": watch.seconds},
        }

    def _cost(self, images: Tensor, kind: str) -> Line:
        """Count the operations of a step and of a bare forward pass on this batch, and leave no trace of it.

        Of a stream's first batch the second step is counted: the first may do what is done once, such as a warm-up on
        source data. The pass is one of the network, as a method may answer with more than one of them.
        """
        with torch.no_grad(), self.adapter.eager():
            _, forward = count_flops(lambda: self.adapter.model(images))
        before = copy.deepcopy(self.adapter.state_dict())
        with self.adapter.eager():
            if not self.lines:
                self.adapter.step(images)
            _, step = count_flops(lambda: self.adapter.step(images))
        self.adapter.load_state_dict(before)
        per_image = {"step_flops_per_image": step // len(images), "forward_flops_per_image": forward // len(images)}
        self.costs[kind] = per_image
        return per_image

    def _mean_cost(self) -> Line:
        """Return the operations of a step, each kind of step counted as often as it came."""
        kinds = [line.get("kind", "step") for line in self.lines]
        step = sum(self.costs[kind]["step_flops_per_image"] for kind in kinds) // len(kinds)
        return {**self.costs[kinds[0]], "step_flops_per_image": step}

    def _closing(self) -> Line:
        record = RunRecord(self.header, self.lines)
        seconds = [line["timing"]["seconds"] for line in self.lines]
        peak = peak_bytes(self.device)  # of the stream: clean images are answered after it
        return {
            "closing": True,
            "mean_error": round(record.mean_error, 6),
            "error_by_domain": {name: round(error, 6) for name, error in record.error_by_domain.items()},
            **self.measures.after_stream(self.lines[0]),
            "cost": self._mean_cost(),
            "timing": {
                "seconds": sum(seconds),
                "seconds_per_step": record.seconds_per_step,
                "peak_bytes": peak,
                **({"shared_gpu": True} if self.shared or shares_gpu(self.device) else {}),
            },
        }

    @contextmanager
    def _writer(self) -> Iterator[Callable[[Line], None]]:
        """Yield a function that puts a line where it belongs; nowhere when the run has no sink."""
        if self.sink is None:
            yield lambda line: None
            return
        with RecordWriter(self.sink, keep_lines=1 + len(self.lines) if self.lines else 0) as self._record:
            if not self.lines:
                self._record.write(self.header)
            yield self._record.write

    def _save(self) -> None:
        self._record.sync()
        save_checkpoint({"batches": len(self.lines), "adapter": self.adapter.state_dict()}, self.checkpoint)
        self.saved_at = time.monotonic()


def _identity(header: Mapping[str, Any]) -> Line:
    return {key: value for key, value in header.items() if key not in FREE_TO_CHANGE}


def _model_facts(model: torch.nn.Module) -> Line:
    info = getattr(model, "info", {})
    return {
        "name": info.get("name", type(model).__name__),
        "weights": info.get("weights"),
        "parameters": sum(value.numel() for value in model.parameters()),
        "sha256": weights_sha256(model),
    }


def diagnostics_to_json(facts: Mapping[str, Tensor | float]) -> dict[str, float | list[float | None] | None]:
    """Return facts as a record keeps them."""
    return {name: _plain(value) for name, value in facts.items()}


def _plain(value: Tensor | float) -> float | list[float | None] | None:
    """Return a fact as plain numbers of six digits, which is more than any figure shows; None where it is no number."""
    if not isinstance(value, Tensor):
        return _digits(value)
    numbers = [_digits(number) for number in value.detach().flatten().tolist()]
    return numbers if value.ndim else numbers[0]


def _digits(number: float) -> float | None:
    return float(f"{number:.6g}") if math.isfinite(number) else None


@contextmanager
def _interrupts_wait() -> Iterator[Callable[[], bool]]:
    """Hold a Ctrl-C back until the batch at hand is done, so that what is saved is whole; a second one is not held."""
    asked: list[int] = []

    def note(number: int, frame: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(asked)
    finally:
        signal.signal(signal.SIGINT, before)
