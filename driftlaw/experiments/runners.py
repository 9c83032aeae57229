"""Runners: execute runs in this process or in worker processes, and report their progress to a listener."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, Self

import torch

from driftlaw.errors import DriftlawError
from driftlaw.experiments.context import ProgressListener, RunContext, RunOptions, RunResult
from driftlaw.experiments.run_spec import RunSpec
from driftlaw.records import compress_record

_Worker = tuple[SpawnProcess, Connection]


def run_all(
    specs: Sequence[RunSpec], options: RunOptions, listener: ProgressListener, *, jobs: int = 1, on: str | None = None
) -> list[RunResult]:
    """Execute runs and return their results in the same order. An error of one run does not affect the others.

    Args:
        specs: runs to execute.
        options: how to execute them.
        listener: receives their progress.
        jobs: number of runs in parallel, each in its own process. With 1 they run in this process.
        on: a Ray that executes the runs, see ``driftlaw.experiments.ray_cluster.connect``. If None, this machine does.
    """
    if on is not None:
        from driftlaw.experiments.ray_runner import RayRunner

        runner: RayRunner | ProcessRunner = RayRunner(on, listener)
    elif jobs > 1:
        runner = ProcessRunner(jobs, listener)
    else:
        context = RunContext(torch.device(options.device), options.data_dir)
        return [run_one(context, spec, options, listener) for spec in specs]
    with runner:
        futures = [runner.submit(spec, options) for spec in specs]
        return [future.result() for future in futures]


def run_one(context: RunContext, spec: RunSpec, options: RunOptions, listener: ProgressListener) -> RunResult:
    """Execute a run in this process and return its result, which may be an error."""
    try:
        record = context.run(spec, options, listener)
        assert record.path is not None
        result = RunResult(spec, compress_record(record.path) if options.compress else record.path)
    except (DriftlawError, RuntimeError, OSError) as error:  # any other exception is a bug
        result = RunResult(spec, problem=str(error) or type(error).__name__)
    listener.ended(result)
    return result


class ProcessRunner:
    """Executes runs in parallel worker processes. The death of a worker affects only the run it executes.

    This is not a ``ProcessPoolExecutor``: there, one dead worker breaks all other runs, and a running worker cannot be
    interrupted so that it saves its state.

    It is a context manager. Leaving it waits for the submitted runs; an exception interrupts them.

    Args:
        jobs: number of worker processes. Each uses an equal share of the CPU threads.
        listener: receives the progress of all runs.
    """

    def __init__(self, jobs: int, listener: ProgressListener) -> None:
        self._listener, self._lock, self._interrupted = listener, threading.Lock(), False
        # From the number of jobs, not of remaining runs: a resumed run needs the same number of threads.
        self._cpu_threads = max(torch.get_num_threads() // jobs, 1)
        self._waiting = ThreadPoolExecutor(jobs)  # each thread waits for one worker
        self._workers: list[_Worker] = []
        self._idle: list[_Worker] = []

    def submit(self, spec: RunSpec, options: RunOptions) -> Future[RunResult]:
        """Queue a run for the next idle worker."""
        return self._waiting.submit(self._run, spec, options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        failed = error[0] is not None
        try:
            if failed:
                self._terminate_workers()  # they save their state first
            self._waiting.shutdown(cancel_futures=failed)
        except BaseException:
            self._terminate_workers()  # a second Ctrl-C: they end without saving
            raise
        finally:
            for process, connection in self._workers:
                connection.close()  # then an idle worker ends
                process.join()

    def _terminate_workers(self) -> None:
        with self._lock:
            self._interrupted = True
            for process, _ in self._workers:
                process.terminate()

    def _run(self, spec: RunSpec, options: RunOptions) -> RunResult:
        """Execute a run in an idle or new worker, and pass its reports to the listener."""
        with self._lock:
            if self._interrupted:
                raise KeyboardInterrupt
            process, connection = worker = self._idle.pop() if self._idle else self._start_worker()
        with suppress(OSError):  # if the worker has ended, receiving fails as well
            connection.send((spec, options))
        report: Any = None
        while not isinstance(report, RunResult):
            try:
                report = connection.recv()
            except (EOFError, OSError):
                report = RunResult(spec, problem=_describe_end(process, options.overwrite))
            with self._lock:
                if isinstance(report, tuple):
                    event, value = report
                    getattr(self._listener, event)(spec, value)
                elif not self._interrupted:
                    self._listener.ended(report)
        if process.is_alive():
            self._idle.append(worker)
        return report

    def _start_worker(self) -> _Worker:
        context = multiprocessing.get_context("spawn")  # a forked process cannot use CUDA
        connection, other_end = context.Pipe()
        process = context.Process(target=_work, args=(other_end, self._cpu_threads))
        process.start()
        other_end.close()  # then reading fails when the process has ended
        worker = (process, connection)
        self._workers.append(worker)
        return worker


def _describe_end(process: SpawnProcess, overwrite: bool) -> str:
    process.join()
    code = process.exitcode or 0
    number = code - 128 if code > 128 else -code  # above 128: it saved its state after a signal
    reason = signal.Signals(number).name if number > 0 else f"exit code {code}"
    again = "without --overwrite" if overwrite else "again"
    return f"The worker process was terminated ({reason}). Run the same command {again} to resume its last checkpoint."


def _work(connection: Connection, cpu_threads: int) -> None:
    """Execute runs in a worker process until the connection ends, because the parent has closed it or has ended."""
    if hasattr(os, "setpgrp"):
        os.setpgrp()  # Ctrl-C is for the parent process, which then terminates its workers
    torch.set_num_threads(cpu_threads)
    context: RunContext | None = None
    try:
        while True:
            spec, options = connection.recv()
            context = context or RunContext(torch.device(options.device), options.data_dir)
            run_one(context, spec, options, _Reporter(connection))
    except (EOFError, ConnectionError):
        return


class _Reporter(ProgressListener):
    """Sends progress to the parent process."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def started(self, spec: RunSpec, steps: int, node: str = "") -> None:
        self._connection.send(("started", steps))

    def stepped(self, spec: RunSpec, done: int) -> None:
        self._connection.send(("stepped", done))

    def ended(self, result: RunResult) -> None:
        self._connection.send(result)
