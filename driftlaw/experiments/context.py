"""Run context: executes runs on one device and keeps the model, images and training data of the last run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from driftlaw import evaluation
from driftlaw.base.model_copy import extract_logits
from driftlaw.components.train_data import TrainData
from driftlaw.datasets import FolderImages, ShardImages, load_dataset
from driftlaw.errors import DataError, UsageError, combined_error, warn_user
from driftlaw.experiments.run_spec import RunSpec
from driftlaw.files import imported_file
from driftlaw.hardware import environment, keep_freed_memory
from driftlaw.methods import make_adapter, registered_methods
from driftlaw.models import load_model, weights_sha256
from driftlaw.records import RecordWriter, RunRecord
from driftlaw.records.jsonl import content_hash, read_lines
from driftlaw.streams import CorruptedStream, make_stream
from driftlaw.torch_files import cache_dir


@dataclass(frozen=True)
class RunOptions:
    """How runs are executed, the same for all runs of a command. Plain picklable data.

    Attributes:
        out: folder for the records.
        device: such as ``cuda``.
        data_dir: folder with data and weights; the default folder if None.
        overwrite: re-run and overwrite finished records.
        replace_incompatible: if a record is from other weights or an incompatible version, rename it and run again.
        compress: compress finished records.
        command: command line to store in the records.
        checkpoint_seconds: seconds between checkpoints.
    """

    out: Path
    device: str = "cpu"
    data_dir: Path | None = None
    overwrite: bool = False
    replace_incompatible: bool = False
    compress: bool = False
    command: str = ""
    checkpoint_seconds: float = 30.0


@dataclass(frozen=True)
class RunResult:
    """Result of a run: the path of its record, or the reason why there is none. Plain picklable data."""

    spec: RunSpec
    record: Path | None = None
    problem: str = ""


class ProgressListener(Protocol):
    """Receives the progress of runs. Runners make one call at a time."""

    def started(self, spec: RunSpec, steps: int, node: str = "") -> None:
        """Called before the first step of a run, with the name of the node if it runs on a cluster."""

    def stepped(self, spec: RunSpec, done: int) -> None:
        """Called with the number of finished steps of a run."""

    def ended(self, result: RunResult) -> None:
        """Called when a run has finished or failed."""
        return  # a listener may ignore it

    def note(self, text: str) -> None:
        """Called with a line for the log, such as that a run was retried."""
        return  # a listener may ignore it


class RunContext:
    """Executes runs one after another. The model, images and training data of the last run are kept for the next.

    Args:
        device: device for models and images.
        data_dir: folder with data and weights; the default folder if None.
        workers: number of processes that read images in advance.
        group: process group whose ranks share every run. Rank 0 reads and writes the records.
    """

    def __init__(self, device: torch.device, data_dir: Path | None = None, workers: int = 0, group: Any = None) -> None:
        self.device, self.data_dir, self.workers, self.group = device, data_dir, workers, group
        if device.type == "cpu":
            keep_freed_memory()  # every step allocates blocks of the same sizes
        self._models: dict[str, nn.Module] = {}
        self._train_data: dict[str, TrainData] = {}
        self._stream: CorruptedStream | None = None

    def model(self, table: Mapping[str, Any]) -> nn.Module:
        """Return the model of a table ``[model]``, trained and on the device. The last one is kept."""
        key = content_hash(dict(table))
        if key not in self._models:
            self._models.clear()
            more = {key: table[key] for key in ("checkpoint", "normalize") if key in table}
            model = load_model(table["weights"], folder=self.data_dir, **more)
            self._models[key] = model.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        return self._models[key]

    def stream(self, spec: RunSpec) -> CorruptedStream:
        """Return the stream of a run. It shares corrupted images with the last stream if they are the same."""
        self._stream = make_stream(
            spec.stream,
            data_dir=self.data_dir,
            device=self.device,
            like=self._stream,
            workers=self.workers,
            seed=spec.seed,
        )
        return self._stream

    def train_data(self, specs: Sequence[RunSpec], stream: CorruptedStream) -> TrainData | None:
        """Return the training data for runs on one stream, or None if no method needs any.

        Raises:
            DataError: the training data is missing. The message names the methods that work without it.
            UsageError: its number of classes or image size differs from the stream's.
        """
        needing = [spec for spec in specs if spec.needs_train_data]
        if not needing:
            return None
        name = needing[0].train_dataset
        if name not in self._train_data:
            self._train_data.clear()
            try:
                images = load_dataset(name, data_dir=self.data_dir, split="train", size=stream.settings.size)
            except DataError as error:
                methods = ", ".join(dict.fromkeys(spec.method for spec in needing))
                others = ",".join(dict.fromkeys(spec.method for spec in specs if not spec.needs_train_data)) or "law"
                raise DataError(f"{error} {methods} need it. To run without them: --methods {others}") from error
            compared = {
                "classes": (images.num_classes, expected_classes(stream, images.num_classes)),
                "image size": (images.image_shape, stream.dataset.image_shape),
            }
            problems = [f"{what}: {ours}, stream: {its}" for what, (ours, its) in compared.items() if ours != its]
            if problems:
                heading = f"The training data {name} does not match the stream (set with --set stream.train_data=NAME):"
                raise combined_error(heading, problems)
            self._train_data[name] = TrainData(images, cache_dir(self.data_dir))
        return self._train_data[name]

    def check(self, specs: Sequence[RunSpec]) -> None:
        """Raise an error if the model, stream and methods of runs on one stream and model do not fit together."""
        first = specs[0]
        model, stream = self.model(first.model), make_stream(first.stream, data_dir=self.data_dir)
        train_data = self.train_data(specs, stream)
        for spec in {spec.method: spec for spec in specs}.values():
            used = train_data if spec.needs_train_data else None
            make_adapter(spec.method, model, spec.settings, seed=spec.seed, train_data=used)
        check_classes(model, stream)

    def reusable_record(self, spec: RunSpec, out: Path) -> RunRecord | None:
        """Return the record of a finished run if versions, method, images and weights are the same now, else None."""
        record = spec.finished_record(out)
        if record is None:
            return None
        expected = {
            **environment(self.device),
            "method_file": imported_file(registered_methods()[spec.method].__module__),
            "stream_sha256": content_hash(self.stream(spec).recipe()),
        }
        compared = ("driftlaw", "versions", "method_file", "stream_sha256")
        same = all(record.header.get(key) == expected[key] for key in compared)
        return record if same and record.header["model"]["sha256"] == weights_sha256(self.model(spec.model)) else None

    def run(self, spec: RunSpec, options: RunOptions, listener: ProgressListener | None = None) -> RunRecord:
        """Execute or resume a run and return its record. A finished record is returned unchanged.

        Args:
            spec: run to execute.
            options: how to execute it. ``device`` and ``data_dir`` are those of the context.
            listener: receives the start and the steps of the run.
        """
        model, stream, path = self.model(spec.model), self.stream(spec), spec.record_path(options.out)
        check_classes(model, stream)
        train_data = self.train_data([spec], stream)
        adapter = make_adapter(
            spec.method, model, spec.settings, seed=spec.seed, train_data=train_data, group=self.group
        )
        look = partial(_earlier_record, spec, options, model, stream)
        finished, earlier = look() if adapter.ranks is None else adapter.ranks.on_first(look)
        if earlier is not None:
            return earlier
        if listener is not None and not finished:
            listener.started(spec, len(stream))
        evaluate = partial(
            evaluation.run,
            stream,
            adapter,
            reset_on=stream.reset_on,
            metrics=spec.metrics,
            record=path,
            command=options.command,
            checkpoint_seconds=options.checkpoint_seconds,
            progress=lambda line: listener.stepped(spec, line["batch"] + 1) if listener is not None else None,
        )
        try:
            return evaluate()
        except evaluation.RecordMismatchError as error:
            if not options.replace_incompatible or error.differing == ["device"]:
                raise
            if adapter.ranks is None or adapter.ranks.rank == 0:
                _rename(path, error.differing)
            if listener is not None:
                listener.started(spec, len(stream))
            return evaluate()


def _earlier_record(
    spec: RunSpec, options: RunOptions, model: nn.Module, stream: CorruptedStream
) -> tuple[bool, RunRecord | None]:
    """Return whether a run is finished, and its record if that is compressed; delete it if it is to be overwritten."""
    path = spec.record_path(options.out)
    if options.overwrite:
        if path.exists():
            RecordWriter(path).close()  # raises an error if another process is writing it
        for candidate in spec.record_candidates(options.out):
            candidate.unlink(missing_ok=True)
    # The evaluator looks at uncompressed records itself.
    if not path.exists() and (compressed := spec.finished_record(options.out)) is not None:
        same_weights = compressed.header["model"].get("sha256") == weights_sha256(model)
        if same_weights and compressed.header["stream"].get("encoding") == stream.encoding:
            return True, compressed
        assert compressed.path is not None
        if not options.replace_incompatible:
            other = "images of another encoding" if same_weights else "other weights of the same name"
            raise UsageError(f"{compressed.path} was made with {other}. Choose another --out, or pass --overwrite.")
        _rename(compressed.path, ["stream" if same_weights else "model"])
    written = read_lines(path) if path.exists() else []
    return bool(written and written[-1].get("closing")), None


def _rename(path: Path, differing: Sequence[str]) -> None:
    target = path.with_name(path.name + ".old")
    path.replace(target)
    path.with_name(path.name + ".checkpoint.pt").unlink(missing_ok=True)
    reasons = {
        "model": "with other weights or another network",
        "method_file": "before the method's file changed",
        "stream": "with other images",
    }
    reason = next((reasons[key] for key in reasons if key in differing), "by an incompatible version of driftlaw")
    warn_user(
        f"{path} was made {reason} (differing: {', '.join(differing)}). It was renamed to {target.name}, and the run "
        "starts again."
    )


def check_classes(model: nn.Module, stream: CorruptedStream) -> None:
    """Raise UsageError if the number of output classes of a model differs from the stream's, if it has labels."""
    if not stream.num_classes:
        return
    classes = getattr(model, "info", {}).get("num_classes")
    if classes is None:  # a user's network
        images = next(iter(stream)).images[:1].to(next(model.parameters()).device)
        with torch.no_grad():
            classes = extract_logits(model, (), model(images)).shape[1]
    if classes != expected_classes(stream, classes):
        hint = " A folder without sub-folders needs no classes." if isinstance(stream.dataset, FolderImages) else ""
        found = f"The model has {classes} output classes, but the stream has {stream.num_classes}."
        raise UsageError(f"{found} Use other weights.{hint}")


def expected_classes(stream: CorruptedStream, classes: int) -> int:
    """Return the number of classes that a model or training data with ``classes`` classes should have.

    Without labels, any number. Shards do not say how many classes there are, only which labels occur.
    """
    if not stream.num_classes or (isinstance(stream.dataset, ShardImages) and stream.num_classes <= classes):
        return classes
    return stream.num_classes
