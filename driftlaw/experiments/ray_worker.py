"""What a Ray task does: executes a run in a worker process, and sends progress and checkpoints to the caller."""

import os
import tempfile
import time
import warnings
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from driftlaw.base.find_method import find_method
from driftlaw.errors import DriftlawWarning
from driftlaw.experiments.context import ProgressListener, RunContext, RunOptions
from driftlaw.experiments.ray_files import DATA, FOLDER, METHODS, SentFiles, place_files
from driftlaw.experiments.run_spec import RunSpec
from driftlaw.experiments.runners import run_one
from driftlaw.hardware import environment
from driftlaw.methods import registered_methods
from driftlaw.profiling import CUDA_CONTEXT_BYTES, peak_bytes
from driftlaw.records import read_record

MARGIN = 1.25  # times the measured peak memory: other methods may need more
STEP_SECONDS = 0.5  # between two reports of steps
CHECKPOINT = ".checkpoint.pt"

Files = dict[str, bytes]
"""Names and contents of the files of one run: its record and checkpoint."""
Start = tuple[int, str, int]
"""Number of steps of a run, id of its node, and number of steps after its first one there."""

_process: dict[str, Any] = {}  # of this worker process, which executes many runs and keeps model and images


class Outcome(NamedTuple):
    """Result of a task: files to write, why it failed, warnings, how it started, and what a similar run needs."""

    files: Files
    problem: str
    warnings: list[str]
    start: Start | None
    needs: dict[str, float]


def execute(
    spec: RunSpec,
    options: RunOptions,
    threads: int,
    folder: str,
    method: str,
    saved: Files,
    sent: SentFiles,
    events: Any,
) -> Outcome:
    """Execute a run and return the files it wrote.

    Args:
        spec: the run.
        options: how to execute it, with the caller's folders.
        threads: CPU threads of torch.
        folder: current folder of the caller.
        method: file and class of a user's method, or an empty string.
        saved: files of an earlier attempt, from which the run resumes.
        sent: files that nodes lack.
        events: Ray queue for tuples of file name of the record, kind of event and value.
    """
    import ray

    if _process.setdefault("gpus", ray.get_gpu_ids()) != ray.get_gpu_ids():
        os._exit(1)  # CUDA of this process is bound to another GPU; the caller retries in a new process
    torch.set_num_threads(threads)
    data_dir, device = options.data_dir, torch.device(options.device)
    if sent:
        place = place_files(sent)
        folder, data_dir, method = f"{place / FOLDER}", place / DATA, method and f"{place / METHODS}{method}"
    with suppress(OSError):  # a node may lack the caller's folder
        os.chdir(folder)
    if method and spec.method not in registered_methods():
        registered_methods()[spec.method] = find_method(method)
    if _process.get("for") != (key := (events, device, data_dir)):
        reporter = _Reporter(events, ray.get_runtime_context().get_node_id())
        _process.update({"for": key, "reporter": reporter, "context": RunContext(device, data_dir)})
    with tempfile.TemporaryDirectory(prefix="driftlaw-run-") as name, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DriftlawWarning)
        path, reporter = spec.record_path(Path(name)), _process["reporter"]
        path.parent.mkdir(parents=True, exist_ok=True)
        for file, content in saved.items():
            (path.parent / file).write_bytes(content)
        record = read_record(path) if path.exists() else None
        if record and not record.finished and record.header["device"] != environment(device)["device"]:
            for file in saved:  # the numbers of this hardware may differ: the run starts again
                (path.parent / file).unlink()
        here = replace(options, out=Path(name), data_dir=data_dir, overwrite=False, compress=False)
        reporter.path, reporter.start = path, None
        result = run_one(_process["context"], spec, here, reporter)
        files = {left.name: left.read_bytes() for left in path.parent.iterdir()}
    texts = [str(each.message) for each in caught if issubclass(each.category, DriftlawWarning)]
    problem, *texts = [text.replace(name, str(options.out)) for text in (result.problem, *texts)]
    needs = {"memory": float(int(MARGIN * peak_bytes(torch.device("cpu"))))}
    if device.type == "cuda":
        used = MARGIN * torch.cuda.max_memory_reserved(device) + CUDA_CONTEXT_BYTES
        share = used / torch.cuda.get_device_properties(device).total_memory
        needs["num_gpus"] = min(1.0, round(share + 0.005, 2))
    return Outcome(files, problem, texts, reporter.start, needs)


class _Reporter(ProgressListener):
    """Sends the progress and the checkpoints of runs to the caller. ``path`` is the record of the current run."""

    def __init__(self, events: Any, node: str) -> None:
        self._events, self._node, self.path = events, node, Path()
        self.start: Start | None = None
        self._steps, self._sent_at, self._saved_at = 0, 0.0, 0

    def _send(self, *event: Any) -> None:
        self._events.actor.put_nowait.remote(event)  # a task that waits would lend its CPUs to another one

    def started(self, spec: RunSpec, steps: int, node: str = "") -> None:
        self._steps, self._saved_at = steps, self._checkpoint_time()

    def stepped(self, spec: RunSpec, done: int) -> None:
        if self.start is None:
            self.start, self._sent_at = (self._steps, self._node, done), time.monotonic()
            self._send(spec.file_name, "started", self.start)
        if (saved_at := self._checkpoint_time()) != self._saved_at:
            self._saved_at, names = saved_at, (self.path.name + CHECKPOINT, self.path.name)  # lines are only added
            files = {name: self.path.with_name(name).read_bytes() for name in names}
            self._send(spec.file_name, "saved", (done - 1, files))
        if time.monotonic() - self._sent_at >= STEP_SECONDS:
            self._sent_at = time.monotonic()
            self._send(spec.file_name, "stepped", done)

    def _checkpoint_time(self) -> int:
        checkpoint = self.path.with_name(self.path.name + CHECKPOINT)
        return checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
