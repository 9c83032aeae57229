"""Cells run one after the other here, or side by side in worker processes of which any may die."""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Protocol

import torch

from driftlaw.errors import DriftlawError
from driftlaw.experiments.context import Workbench
from driftlaw.experiments.run_spec import Cell
from driftlaw.profiling import peak_bytes
from driftlaw.records.compress import compress_record

TOLD_EVERY = 0.2  # seconds between two words of a worker on how far it has come
WEIGHED_AFTER = 3  # steps of a cell: by then its memory is what it will be
SPARE = 1.2  # how much more than the largest worker's memory must be free for one more
CONTEXT_BYTES = 2**29  # what a process holds on a GPU beside its tensors


@dataclass(frozen=True)
class Orders:
    """How cells are run, the same for all of them.

    Attributes:
        out: the folder that records go to.
        device: such as ``cuda``.
        data_dir: where data and weights lie, where it is not the default folder.
        again: replace records that are there.
        compress: leave finished records compressed.
        command: what records say they were started with.
        checkpoint_seconds: how much work a kill may cost.
        threads: of each worker process on a CPU; torch's own choice where 0.
    """

    out: Path
    device: str
    data_dir: Path | None = None
    again: bool = False
    compress: bool = False
    command: str = ""
    checkpoint_seconds: float = 30.0
    threads: int = 0


@dataclass(frozen=True)
class Outcome:
    """How a cell ended: with a record, or with the reason why there is none."""

    cell: Cell
    record: Path | None = None
    problem: str = ""


class Watcher(Protocol):
    """Who is told how far things have come."""

    def started(self, cell: Cell, steps: int) -> None:
        """A cell's first step is about to be taken."""

    def stepped(self, cell: Cell, done: int) -> None:
        """So many steps of a cell are done."""

    def ended(self, outcome: Outcome) -> None:
        """A cell has its record, or will not get one."""


def run_cells(cells: Sequence[Cell], orders: Orders, watcher: Watcher, *, jobs: int = 1) -> list[Outcome]:
    """Run cells and return how each ended; what goes wrong with one does not keep the others from being run.

    Args:
        cells: what to run.
        orders: how.
        watcher: who is told.
        jobs: how many at a time, each in a process of its own, as far as there is memory; 1 runs them here.
    """
    if jobs > 1:
        return _Crew(cells, orders, watcher, jobs).work()
    bench = Workbench(torch.device(orders.device), orders.data_dir)
    return [_watched(bench, cell, orders, watcher) for cell in cells]


def share_of_threads(jobs: int) -> int:
    """Return how many threads each of several processes may use."""
    return max(torch.get_num_threads() // jobs, 1)


def _watched(bench: Workbench, cell: Cell, orders: Orders, watcher: Watcher) -> Outcome:
    outcome = _run(
        bench,
        cell,
        orders,
        started=lambda steps: watcher.started(cell, steps),
        stepped=lambda done: watcher.stepped(cell, done),
    )
    watcher.ended(outcome)
    return outcome


def _run(
    bench: Workbench, cell: Cell, orders: Orders, started: Callable[[int], None], stepped: Callable[[int], None]
) -> Outcome:
    """Run one cell; an error that has words, or is torch's, is the outcome, any other one is a bug and raised."""
    try:
        record = bench.run(
            cell,
            orders.out,
            again=orders.again,
            command=orders.command,
            checkpoint_seconds=orders.checkpoint_seconds,
            started=started,
            progress=lambda line: stepped(line["batch"] + 1),
        )
    except BrokenPipeError:
        raise  # nobody is there to hear of it
    except (DriftlawError, RuntimeError, OSError) as error:
        return Outcome(cell, problem=str(error) or type(error).__name__)
    assert record.path is not None
    return Outcome(cell, compress_record(record.path) if orders.compress else record.path)


# --- a worker's side -------------------------------------------------------------------------------------------------


def _work(connection: Connection, orders: Orders) -> None:
    """Run the cells that come over the connection until None comes, or nobody is at its other end."""
    if hasattr(os, "setpgrp"):
        os.setpgrp()  # a Ctrl-C is for the parent, which hands it on once
    if orders.threads:
        torch.set_num_threads(orders.threads)
    bench = Workbench(torch.device(orders.device), orders.data_dir)
    try:
        while (cell := connection.recv()) is not None:
            teller = _Teller(connection, bench.device)
            connection.send(("ended", _run(bench, cell, orders, teller.started, teller.stepped)))
    except (KeyboardInterrupt, EOFError, BrokenPipeError):
        return


class _Teller:
    """Tells the parent how far a cell has come, not more often than anybody can read, and what memory it takes."""

    def __init__(self, connection: Connection, device: torch.device) -> None:
        self.connection, self.device = connection, device
        self.steps, self.told_at, self.told = 0, 0.0, 0

    def started(self, steps: int) -> None:
        self.steps = steps
        self.connection.send(("started", steps))

    def stepped(self, done: int) -> None:
        self.told += 1
        if self.told == min(WEIGHED_AFTER, self.steps):
            self.connection.send(("memory", _memory(self.device)))
        if time.monotonic() - self.told_at >= TOLD_EVERY or done == self.steps:
            self.connection.send(("stepped", done))
            self.told_at = time.monotonic()


def _memory(device: torch.device) -> tuple[int, int | None]:
    """Return the bytes that this process takes and those that are free, None where nobody knows."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return torch.cuda.max_memory_reserved(device) + CONTEXT_BYTES, free
    return peak_bytes(device), _free_memory()


def _free_memory() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = [line.split() for line in lines if line.startswith("MemAvailable:")]
    return int(found[0][1]) * 1024 if found else None


# --- the parent's side -----------------------------------------------------------------------------------------------


class _Worker:
    """A process and the cell that it is busy with."""

    def __init__(self, orders: Orders, cell: Cell) -> None:
        context = get_context("spawn")  # a fork would take half a CUDA context with it
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, orders), daemon=True)
        self.process.start()
        theirs.close()  # so that the connection ends with the process
        self.memory: tuple[int, int | None] | None = None
        self.has_begun = False
        self.give(cell)

    def give(self, cell: Cell | None) -> None:
        self.cell = cell
        # Where it has died, the end of its connection tells so, and its cell with it.
        with suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(cell)

    def obituary(self) -> str:
        """Return how the process died, in words."""
        self.process.join()
        code = self.process.exitcode or 0
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"its process died ({how}); the same command goes on from the last checkpoint"


class _Crew:
    """Workers with one cell each; one more is taken on where those at work have left memory for it."""

    def __init__(self, cells: Sequence[Cell], orders: Orders, watcher: Watcher, jobs: int) -> None:
        self.waiting = deque(cells)
        self.orders, self.watcher, self.jobs = orders, watcher, jobs
        self.workers: list[_Worker] = []
        self.outcomes: list[Outcome] = []

    def work(self) -> list[Outcome]:
        """Run all cells."""
        try:
            while self.waiting or self.workers:
                if self.waiting and len(self.workers) < self.jobs and self._has_room():
                    self.workers.append(_Worker(self.orders, self.waiting.popleft()))
                    continue
                for connection in wait([worker.connection for worker in self.workers]):
                    self._listen(next(worker for worker in self.workers if worker.connection is connection))
        except KeyboardInterrupt:
            self._interrupt()
            raise
        finally:
            for worker in self.workers:
                worker.process.terminate()
        return self.outcomes

    def _has_room(self) -> bool:
        weighed = [worker.memory for worker in self.workers if worker.memory is not None]
        if len(weighed) < len(self.workers):
            return False  # one at a time: the next is let in when it is known what the last one takes
        free = [left for _, left in weighed[-1:] if left is not None]
        return not free or free[0] >= SPARE * max(used for used, _ in weighed)

    def _listen(self, worker: _Worker) -> None:
        try:
            kind, what = worker.connection.recv()
        except (EOFError, ConnectionResetError):
            self._bury(worker)
            return
        if kind == "memory":
            worker.memory = what
            self.workers.remove(worker)
            self.workers.append(worker)  # the last one weighed knows best what is free
        elif kind == "ended":
            self._end(what)
            self._go_on(worker)
        else:
            worker.has_begun = True
            getattr(self.watcher, kind)(worker.cell, what)

    def _go_on(self, worker: _Worker) -> None:
        worker.give(self.waiting.popleft() if self.waiting else None)
        if worker.cell is None:
            self.workers.remove(worker)
            worker.process.join()
            worker.connection.close()

    def _bury(self, worker: _Worker) -> None:
        self.workers.remove(worker)
        obituary = worker.obituary()
        worker.connection.close()
        if worker.cell is not None:
            self._end(Outcome(worker.cell, problem=obituary))

    def _end(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self.watcher.ended(outcome)

    def _interrupt(self) -> None:
        """Hand a Ctrl-C on and wait until every worker has saved its state; a second one does not wait."""
        for worker in self.workers:
            if not worker.has_begun:
                worker.process.terminate()  # it has nothing to save yet, and would complain
            elif worker.process.pid is not None and worker.process.is_alive():
                os.kill(worker.process.pid, signal.SIGINT)
        for worker in self.workers:
            while worker.process.is_alive():
                self._drain(worker)
                worker.process.join(TOLD_EVERY)

    @staticmethod
    def _drain(worker: _Worker) -> None:
        """Take what a worker still tells: with nobody to hear it, it would wait for ever."""
        try:
            while worker.connection.poll():
                worker.connection.recv()
        except (EOFError, OSError):
            return
