"""Runs on Ray: every run is a task of a local Ray or of a cluster, and is retried if its worker or node is lost."""

import os
import sys
import threading
import time
from concurrent.futures import Future
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import torch

from driftlaw.errors import DataError, DriftlawError, UsageError
from driftlaw.experiments import ray_cluster
from driftlaw.experiments.context import ProgressListener, RunContext, RunOptions, RunResult
from driftlaw.experiments.ray_files import SentFiles, fingerprint, method_file, missing_files, needed_files, send_files
from driftlaw.experiments.ray_worker import CHECKPOINT, Files, Outcome, execute
from driftlaw.experiments.run_spec import RunSpec
from driftlaw.files import atomic_path
from driftlaw.methods import registered_methods
from driftlaw.paths import data_dir
from driftlaw.records import compress_record
from driftlaw.records.jsonl import content_hash

MAX_RETRIES = 3
POLL_SECONDS = 0.1
REASONS = {
    "WorkerCrashedError": "its worker process died",
    "OutOfMemoryError": "its node had no memory left",
    "NodeDiedError": "its node was lost",
}
HEAD = "node:__internal_head__"  # Ray's name of a resource that only the head node has


@dataclass
class _Cell:
    """A run that was submitted, and its current task."""

    spec: RunSpec
    options: RunOptions
    future: Future[RunResult] = field(default_factory=Future)
    sent: SentFiles = field(default_factory=dict)
    reference: Any = None
    node: str = ""
    saved_steps: int = 0
    retries: int = 0
    whole_gpu: bool = False

    @property
    def path(self) -> Path:
        return self.spec.record_path(self.options.out)

    @property
    def base_needs(self) -> dict[str, float]:
        """CPUs and GPUs of a run that is measured. The steps of a run on a GPU are started by one CPU."""
        on_gpu = self.options.device == "cuda"
        return {"num_cpus": 1, "num_gpus": 1} if on_gpu else {"num_cpus": torch.get_num_threads()}

    def saved_files(self) -> Files:
        """Return the record and the checkpoint of earlier attempts."""
        paths = [*self.spec.record_candidates(self.options.out), self.path.with_name(self.path.name + CHECKPOINT)]
        return {path.name: path.read_bytes() for path in paths if path.exists()}

    def write(self, files: Files) -> None:
        """Replace files of the run: the record first, because its checkpoint refers to lines of it."""
        for name in sorted(files):
            with atomic_path(self.path.with_name(name)) as temporary:
                temporary.write_bytes(files[name])


class RayRunner:
    """Executes every run as a task of Ray. A run whose worker or node is lost resumes from its last checkpoint.

    The first run of a preset is measured. The other runs reserve the memory and the share of a GPU that it needed.

    It is a context manager. Leaving it waits for the submitted runs; an exception interrupts them.

    Args:
        on: see ``ray_cluster.connect``. If this process is already connected to a Ray, that one is used.
        listener: receives the progress of all runs. It may be replaced between two runs.
    """

    def __init__(self, on: str, listener: ProgressListener) -> None:
        self._on, self.listener, self._lock = on, listener, threading.RLock()
        self._queued: list[_Cell] = []
        self._active: dict[str, _Cell] = {}  # by file name of the record
        self._needs: dict[str, dict[str, float]] = {}  # by preset; empty while its first run is measured
        self._sent: dict[str, SentFiles] = {}  # by hash of the needed files
        self._context: RunContext | None = None
        self._ending = self._interrupted = False
        self._submitted_at, self._fitting_at = 0.0, time.monotonic()

    def __enter__(self) -> Self:
        self._disconnect = ray_cluster.connect(self._on)
        try:
            from ray.util.queue import Queue

            self._nodes = ray_cluster.check_versions()
            self._events = Queue(actor_options={"num_cpus": 0, "resources": {HEAD: 0.001}})
        except BaseException:
            self._disconnect()
            raise
        cpus, gpus = (sum(node.get(name, 0) for node in ray_cluster.resources()) for name in ("CPU", "GPU"))
        self.listener.note(
            f"Ray: nodes: {len(self._nodes)}, CPUs: {cpus:g}, GPUs: {gpus:g}. CPU threads per run: "
            f"{torch.get_num_threads()} (OMP_NUM_THREADS changes it)."
        )
        self._redirection = redirect_stdout(sys.stderr)  # Ray prints the deaths of workers; stdout is for results
        self._redirection.__enter__()
        self._thread = threading.Thread(target=self._coordinate, daemon=True)
        self._thread.start()
        return self

    def submit(self, spec: RunSpec, options: RunOptions) -> Future[RunResult]:
        """Queue a run. The finished record of a run is returned without a task.

        Raises:
            UsageError: the cluster does not have the device, or lacks files that are too large to be sent.
        """
        device, folder = ray_cluster.pick_cluster_device(options.device), data_dir(options.data_dir).resolve()
        options = replace(options, device=device, data_dir=folder)
        self._context = self._context or RunContext(torch.device("cpu"), options.data_dir)
        cell = _Cell(spec, options)
        record = None if options.overwrite else self._context.reusable_record(spec, options.out)
        if record is not None:
            self._end(cell, record.path)
            return cell.future
        cell.sent = self._send_missing_files(spec, options)
        if options.overwrite:
            for name in cell.saved_files():
                cell.path.with_name(name).unlink()
        with self._lock:
            self._queued.append(cell)
            self._submitted_at = time.monotonic()
        return cell.future

    def __exit__(self, *error: Any) -> None:
        self._ending, self._interrupted = True, error[0] is not None
        try:
            self._thread.join()
        finally:
            self._redirection.__exit__(*error)
            self._disconnect()

    def _send_missing_files(self, spec: RunSpec, options: RunOptions) -> SentFiles:
        """Return the files of a run if a node lacks some of them; empty if all nodes have them."""
        assert options.data_dir is not None
        needed = needed_files(spec, options.data_dir)
        key = content_hash(sorted(needed))
        if key not in self._sent:
            expected = {str(path.absolute()): fingerprint(path) for path in needed.values()}
            found = ray_cluster.on_every_node(missing_files, expected) if expected else {}
            lacking = [f"The node {self._nodes[node]} does not have {path}" for node in found for path in found[node]]
            self._sent[key] = send_files(needed, lacking) if lacking else {}
            if lacking:
                self.listener.note(f"{lacking[0]}, or has another version. Files are sent to the nodes.")
        return self._sent[key]

    def _coordinate(self) -> None:
        """Start tasks and handle their events and results until all runs have ended. Runs in a thread."""
        import ray

        try:
            while not self._interrupted and (self._queued or self._active or not self._ending):
                self._check_fitting_node()
                if time.monotonic() - self._submitted_at > POLL_SECONDS:  # or the most expensive run may be missing
                    self._start_tasks()
                cells = {cell.reference: cell for cell in self._active.values()}
                ready = ray.wait(list(cells), timeout=POLL_SECONDS)[0] if cells else []
                if not cells:
                    time.sleep(POLL_SECONDS)
                with self._lock:
                    for name, event, value in self._events.get_nowait_batch(self._events.qsize()):
                        if name in self._active:
                            self._handle_event(self._active[name], event, value)
                    for reference in ready:
                        self._finish(cells[reference])
        except BaseException as error:
            problem: BaseException = error
            if isinstance(error, ray.exceptions.RayError):
                problem = DataError(f"The connection to Ray was lost: {error}. Run the same command again to resume.")
            for cell in [*self._queued, *self._active.values()]:
                cell.future.set_exception(problem)
            self._queued.clear()
        finally:
            for cell in self._active.values():
                ray.cancel(cell.reference, force=True)

    def _check_fitting_node(self) -> None:
        """Raise UsageError if for some time no node has been large enough for a run that waits."""
        now, waiting = time.monotonic(), [*self._queued, *self._active.values()]
        if not waiting or ray_cluster.has_node_with(waiting[0].base_needs):
            self._fitting_at = now
        elif now - self._fitting_at > ray_cluster.NODE_SECONDS:
            wanted = " and ".join(f"{name}={value}" for name, value in waiting[0].base_needs.items())
            raise UsageError(
                f"No node of the Ray cluster has what a run needs: {wanted}. Add a larger node, or set OMP_NUM_THREADS "
                "to at most the number of CPUs of a node."
            )

    def _start_tasks(self) -> None:
        import ray

        with self._lock:
            waiting = sorted(self._queued, key=lambda cell: -cell.spec.step_cost)  # the first one is measured
            memory = [node.get("memory", 0) for node in ray_cluster.resources()] if waiting else []
            for cell in waiting:
                spec, needs = cell.spec, dict(cell.base_needs)
                if measured := self._needs.setdefault(spec.preset, {}):
                    needs |= measured | ({"num_gpus": 1} if cell.whole_gpu else {})
                    needs["memory"] = min(needs["memory"], max(memory, default=0))
                elif any(other.spec.preset == spec.preset for other in self._active.values()):
                    continue  # until the first one has been measured
                method = method_file(spec)
                name = f"{method}:{registered_methods()[spec.method].__name__}" if method else ""
                more = (torch.get_num_threads(), os.getcwd(), name, cell.saved_files(), cell.sent, self._events)
                task = ray.remote(execute).options(max_retries=0, name="driftlaw", **needs)
                cell.reference, cell.node = task.remote(spec, cell.options, *more), ""
                self._queued.remove(cell)
                self._active[spec.file_name] = cell

    def _handle_event(self, cell: _Cell, event: str, value: Any) -> None:
        if event == "started":
            steps, node, done = value
            cell.node = self._nodes.get(node, node)
            self.listener.started(cell.spec, steps, cell.node)
            self.listener.stepped(cell.spec, done)
        elif event == "stepped":
            self.listener.stepped(cell.spec, value)
        elif event == "saved":
            cell.saved_steps, files = value
            cell.write(files)

    def _finish(self, cell: _Cell) -> None:
        """Handle the end of a task: write its files, or start it again if its worker was lost."""
        import ray

        try:
            outcome: Outcome = ray.get(cell.reference)
        except ray.exceptions.RayTaskError as error:
            if not isinstance(error.cause, DriftlawError | RuntimeError | OSError):
                raise  # a bug
            self._end(cell, problem=str(error.cause))
            return
        except ray.exceptions.RayError as error:
            reason = REASONS.get(type(error).__name__, str(error).splitlines()[0])
            self._retry(cell, f"{reason} ({cell.node})" if cell.node else reason)
            return
        if "out of memory" in outcome.problem and cell.options.device == "cuda" and not cell.whole_gpu:
            cell.whole_gpu = True
            self._retry(cell, f"a GPU of {cell.node} had no memory left; now it gets a whole one")
            return
        if outcome.start and not cell.node:  # its events may arrive after its result
            self._handle_event(cell, "started", outcome.start)
        for text in outcome.warnings:
            self.listener.note(f"! {text}")
        for name in cell.saved_files().keys() - outcome.files.keys():
            cell.path.with_name(name).unlink()
        cell.write(outcome.files)
        if not outcome.problem and not self._needs[cell.spec.preset]:
            self._needs[cell.spec.preset] = dict(outcome.needs)
            memory = f"{outcome.needs['memory'] / 1e9:.1f} GB of memory"
            share = f", {outcome.needs['num_gpus']} GPUs" if "num_gpus" in outcome.needs else ""
            self.listener.note(f"Ray: each further run of {cell.spec.preset} reserves {memory}{share}.")
        paths = [path for path in cell.spec.record_candidates(cell.options.out) if path.exists()]
        self._end(cell, None if outcome.problem else paths[0], outcome.problem)

    def _retry(self, cell: _Cell, reason: str) -> None:
        if cell.retries == MAX_RETRIES:
            again = "Run the same command again to resume its last checkpoint."
            self._end(cell, problem=f"It was retried {MAX_RETRIES} times; the last time {reason}. {again}")
            return
        cell.retries += 1
        start = f"step {cell.saved_steps}" if cell.saved_steps else "the beginning"
        self.listener.note(f"{cell.spec.title}: retry {cell.retries} from {start}, because {reason}")
        del self._active[cell.spec.file_name]
        self._queued.append(cell)

    def _end(self, cell: _Cell, record: Path | None = None, problem: str = "") -> None:
        if record is not None and cell.options.compress:
            record = compress_record(record)
        result = RunResult(cell.spec, record, problem)
        with self._lock:
            self.listener.ended(result)
            self._active.pop(cell.spec.file_name, None)
        cell.future.set_result(result)
