"""Runners: execute runs in this process or in worker processes, and report their progress to a listener."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

import torch

from driftlaw.errors import DriftlawError
from driftlaw.experiments.context import ProgressListener, RunContext, RunOptions, RunResult
from driftlaw.experiments.run_spec import RunSpec
from driftlaw.records.compress import compress_record

POLL_SECONDS = 0.2  # the delay until the end of a run is noticed


class Runner(Protocol):
    """Executes runs. An error of one run becomes its result and does not affect the others.

    A runner is a context manager. Leaving it waits for the submitted runs; an exception interrupts them.
    """

    def submit(self, spec: RunSpec, options: RunOptions) -> Future[RunResult]:
        """Start or queue a run and return the future of its result."""

    def __enter__(self) -> Runner: ...

    def __exit__(self, *error: Any) -> None: ...


def run_all(
    specs: Sequence[RunSpec], options: RunOptions, listener: ProgressListener, *, jobs: int = 1
) -> list[RunResult]:
    """Execute runs and return their results in the same order.

    Args:
        specs: runs to execute.
        options: how to execute them.
        listener: receives their progress.
        jobs: number of runs in parallel, each in its own process. With 1 they run in this process.
    """
    runner: Runner = SerialRunner(listener) if jobs == 1 else ProcessRunner(jobs, listener)
    with runner:
        futures = [runner.submit(spec, options) for spec in specs]
        return [future.result() for future in futures]


def threads_per_job(jobs: int) -> int:
    """Return the number of CPU threads for each of several processes."""
    return max(torch.get_num_threads() // jobs, 1)


def _execute(context: RunContext, spec: RunSpec, options: RunOptions, listener: ProgressListener) -> RunResult:
    try:
        record = context.run(spec, options, listener)
    except (DriftlawError, RuntimeError, OSError) as error:  # any other exception is a bug
        return RunResult(spec, problem=str(error) or type(error).__name__)
    assert record.path is not None
    return RunResult(spec, compress_record(record.path) if options.compress else record.path)


class SerialRunner:
    """Executes each run in this process when it is submitted."""

    def __init__(self, listener: ProgressListener) -> None:
        self._listener = listener
        self._context: RunContext | None = None

    def submit(self, spec: RunSpec, options: RunOptions) -> Future[RunResult]:
        """Execute a run and return a future that is done."""
        self._context = self._context or RunContext(torch.device(options.device), options.data_dir)
        result = _execute(self._context, spec, options, self._listener)
        self._listener.ended(result)
        future: Future[RunResult] = Future()
        future.set_result(result)
        return future

    def __enter__(self) -> SerialRunner:
        return self

    def __exit__(self, *error: Any) -> None:
        return None


class ProcessRunner:
    """Executes runs in parallel worker processes. The death of a worker affects only the run it executes.

    Args:
        jobs: number of worker processes.
        listener: receives the progress of all runs.
    """

    def __init__(self, jobs: int, listener: ProgressListener) -> None:
        self._listener, self._lock, self._interrupted = listener, threading.Lock(), False
        self._threads = ThreadPoolExecutor(jobs)  # each thread has one worker and waits for it
        self._of_thread = threading.local()
        self._workers: list[_Worker] = []

    def submit(self, spec: RunSpec, options: RunOptions) -> Future[RunResult]:
        """Queue a run for the next idle worker."""
        return self._threads.submit(self._run, spec, options)

    def __enter__(self) -> ProcessRunner:
        return self

    def __exit__(self, *error: Any) -> None:
        failed = error[0] is not None
        try:
            if failed:
                self._terminate_workers()  # they save their state first
            self._threads.shutdown(cancel_futures=failed)
        except BaseException:
            self._terminate_workers()  # a second Ctrl-C: they end without saving
            raise
        finally:
            for worker in self._workers:
                worker.pool.shutdown()

    def _terminate_workers(self) -> None:
        with self._lock:
            self._interrupted = True
            for worker in self._workers:
                worker.process.terminate()

    def _run(self, spec: RunSpec, options: RunOptions) -> RunResult:
        """Execute a run in the worker of the current thread."""
        with self._lock:
            if self._interrupted:
                raise KeyboardInterrupt
            if not hasattr(self._of_thread, "worker"):
                self._of_thread.worker = _Worker()
                self._workers.append(self._of_thread.worker)
            worker: _Worker = self._of_thread.worker
        try:
            result = self._wait(worker, spec, worker.pool.submit(_run_in_worker, spec, options))
        except (BrokenProcessPool, SystemExit):  # SystemExit: the worker received SIGTERM and saved its state
            del self._of_thread.worker
            problem = (
                f"The worker process was terminated ({worker.exit_reason()}). Run the same command again to resume "
                "from the last checkpoint."
            )
            result = RunResult(spec, problem=problem)
        with self._lock:
            if not self._interrupted:
                self._listener.ended(result)
        return result

    def _wait(self, worker: _Worker, spec: RunSpec, future: Future[RunResult]) -> RunResult:
        """Pass the reports of a worker to the listener until its run has ended."""
        done = False
        while not done:
            done = future.done()
            try:
                while worker.reports.poll(0.0 if done else POLL_SECONDS):
                    event, value = worker.reports.recv()
                    with self._lock:
                        getattr(self._listener, event)(spec, value)
            except EOFError:  # the process has ended
                break
        return future.result()


class _Worker:
    """Pool of one process, so that the death of the process breaks no other pool."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")  # a forked process cannot use CUDA
        self.reports, sender = context.Pipe(duplex=False)
        self.pool = ProcessPoolExecutor(1, mp_context=context, initializer=_start_worker, initargs=(sender,))
        others = set(multiprocessing.active_children())
        self.pool.submit(os.getpid)  # starts the process
        (self.process,) = set(multiprocessing.active_children()) - others
        sender.close()  # then the connection ends with the process

    def exit_reason(self) -> str:
        """Stop the process and return the signal or code it ended with."""
        self.process.terminate()
        self.pool.shutdown()
        code = self.process.exitcode or 0
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"


# --- in the worker process -------------------------------------------------------------------------------------------

_sender: Connection  # set by _start_worker


def _start_worker(sender: Connection) -> None:
    global _sender
    _sender = sender
    if hasattr(os, "setpgrp"):
        os.setpgrp()  # Ctrl-C is for the parent process, which then terminates its workers
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@lru_cache(maxsize=1)
def _worker_context(device: str, data_dir: Path | None) -> RunContext:
    return RunContext(torch.device(device), data_dir)


def _run_in_worker(spec: RunSpec, options: RunOptions) -> RunResult:
    if options.threads:
        torch.set_num_threads(options.threads)
    return _execute(_worker_context(options.device, options.data_dir), spec, options, _Reporter())


class _Reporter:
    """Sends progress to the parent process."""

    def started(self, spec: RunSpec, steps: int) -> None:
        _sender.send(("started", steps))

    def stepped(self, spec: RunSpec, done: int) -> None:
        _sender.send(("stepped", done))

    def ended(self, result: RunResult) -> None:
        """Do nothing: the result is returned."""
