"""Lanes of a step on a CPU: threads that share its cores, for passes that do not hang on each other.

Small feature maps keep two cores waiting for each other after every operation; two passes side by side, each on its own
cores, wait for each other once or twice a step. A third lane, where it has one thread as the others do, takes what
either core has left.
"""

from __future__ import annotations

import contextvars
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

MOST_LANES = 3


class Lane:
    """A thread with its share of the cores, which does what it is handed in turn."""

    def __init__(self, worker: ThreadPoolExecutor) -> None:
        self.tasks: list[Future[Any]] = []
        self._worker = worker
        self._autocast = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")  # a thread knows its own

    def do(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Hand over ``function(*arguments)``; arguments that are handed-over work themselves are waited for there.

        No two lanes ever wait for each other, as nothing can be waited for that was not handed over before.
        """
        context = contextvars.copy_context()  # torch's settings for compilers
        task = self._worker.submit(context.run, _call, self._autocast, function, arguments)
        self.tasks.append(task)
        return task


@contextmanager
def open_lanes(count: int = 2) -> Iterator[tuple[Lane, ...]]:
    """Yield two or three lanes; outside, all they were handed is done, so that nothing runs on behind an error."""
    lanes = tuple(Lane(worker) for worker in _workers(os.getpid(), torch.get_num_threads())[:count])
    try:
        yield lanes
    finally:
        wait([task for lane in lanes for task in lane.tasks])


def can_have_lanes() -> bool:
    """Tell whether torch's threads can be halved, and nothing watches this thread that would not see the others."""
    threads = torch.get_num_threads()
    watched = (
        torch._C._len_torch_dispatch_stack() > 0  # a FLOP counter
        or torch._C._len_torch_function_stack() > 0  # a default device
        or torch.autograd._profiler_enabled()
    )
    return threads >= 2 and threads % 2 == 0 and not watched


def twin(model: nn.Module) -> nn.Module:
    """Return a network with the same parameters, buffers and hooks whose modules are its own, for another thread.

    What a pass writes down on its modules and reads again is then not what another pass wrote. The twin of a compiled
    network runs the network's own code, which writes down what it must at its end.
    """
    copies = {module: _shallow(module) for module in model.modules()}
    for module, own in copies.items():
        if own is not module:
            own._modules = {name: copies.get(child, child) for name, child in module._modules.items()}
    return copies[model]


def _shallow(module: nn.Module) -> nn.Module:
    if isinstance(module, torch.jit.ScriptModule):  # writes nothing down in Python
        return module
    own = module.__new__(type(module))
    own.__dict__ = module.__dict__ | {name: module.__dict__[name].copy() for name in ("_parameters", "_buffers")}
    return own


@functools.cache
def _workers(process: int, threads: int) -> tuple[ThreadPoolExecutor, ...]:
    """Return threads of this process with half of the cores each; a forked process has none of its parent's."""
    workers = tuple(ThreadPoolExecutor(1, thread_name_prefix="driftlaw-lane") for _ in range(MOST_LANES))
    for worker in workers:
        worker.submit(torch.get_num_threads).result()  # a thread's first question sets its number, so it comes first
        worker.submit(torch.set_num_threads, max(threads // 2, 1)).result()
    torch.set_num_threads(threads)  # what threads that are yet to be born start with
    return workers


def _call(autocast: tuple[bool, torch.dtype], function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    there = [value.result() if isinstance(value, Future) else value for value in arguments]
    enabled, dtype = autocast
    with torch.autocast("cpu", dtype, enabled=enabled, cache_enabled=False):
        return function(*there)
