"""Thread engine: runs the independent passes of a step in parallel on a CPU.

With small feature maps, intra-op parallelism spends much of its time synchronising threads after each operation.
Running the two passes in two threads, each with half of torch's threads, synchronises only once or twice per step.
Compiled models may use a third thread for the third backward pass.
"""

import contextvars
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from driftlaw.execution.two_pass import Passes, TwoPassResult, logit_gradients, sequential, vjp

MAX_THREADS = 3


class ThreadEngine:
    """Runs each pass of a step in a thread of its own.

    The loss is cut at the logits: its gradient there needs no network, and each pass propagates it back on its own.

    Args:
        count: 2, or 3 for a third thread that runs the first backward pass.
        first_alone: start the second pass only after the first forward pass; then only one thread compiles.
    """

    def __init__(self, count: int = 2, *, first_alone: bool = False) -> None:
        self.count, self.first_alone = count, first_alone

    def __call__(self, passes: Passes) -> TwoPassResult:
        """Run the passes in threads."""
        if passes.augment is None:
            return sequential(passes)
        images, parameters, probe = passes.images, passes.parameters, passes.probe
        second_network = shallow_clone(passes.network)
        with open_threads(self.count) as (first, second, *third):
            logits = first.submit(passes.network, images)
            probed = first.submit(probe, logits, parameters) if probe else None
            augmented = second.submit(passes.augment, images)
            if self.first_alone:
                augmented = second.submit(lambda value, _: value, augmented, probed or logits)
            augmented_logits = second.submit(second_network, augmented)
            slopes = second.submit(logit_gradients, passes.loss, logits, augmented_logits)
            second_summand = second.submit(vjp, augmented_logits, slopes, 1, parameters)
            free = third if probe else [first]
            first_summand = free[0].submit(vjp, logits, slopes, 0, parameters, bool(probe)) if free else None
        # With two threads and a probe, one backward pass is left. It runs here, on all cores.
        gradients = first_summand.result() if first_summand else vjp(logits.result(), slopes.result(), 0, parameters)
        return TwoPassResult(
            logits.result().detach(), probed.result() if probed else None, [gradients, second_summand.result()]
        )


class PassThread:
    """A thread with a share of torch's threads that runs submitted calls in order."""

    def __init__(self, worker: ThreadPoolExecutor) -> None:
        self.tasks: list[Future[Any]] = []
        self._worker = worker
        self._autocast = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")  # state of each thread

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Submit ``function(*arguments)``; arguments that are futures are waited for in this thread.

        Threads cannot deadlock, because a call can only wait for calls that were submitted earlier.
        """
        context = contextvars.copy_context()  # torch's settings for compilers
        task = self._worker.submit(context.run, _call, self._autocast, function, arguments)
        self.tasks.append(task)
        return task


@contextmanager
def open_threads(count: int = 2) -> Iterator[tuple[PassThread, ...]]:
    """Context manager that yields threads; on exit, all submitted calls have ended, also after an error."""
    threads = tuple(PassThread(worker) for worker in _workers(os.getpid(), torch.get_num_threads())[:count])
    try:
        yield threads
    finally:
        wait([task for thread in threads for task in thread.tasks])


def can_use_threads() -> bool:
    """Return True if torch's threads can be halved, and no observer of this thread would miss the others."""
    threads = torch.get_num_threads()
    observed = (
        torch._C._len_torch_dispatch_stack() > 0  # a FLOP counter
        or torch._C._len_torch_function_stack() > 0  # a default device
        or torch._C._autograd._profiler_enabled()
    )
    return threads >= 2 and threads % 2 == 0 and not observed


def shallow_clone(model: nn.Module) -> nn.Module:
    """Return a network with the same parameters, buffers and hooks but its own module objects, for another thread.

    What a forward pass stores on its modules is then not overwritten by a parallel pass. The clone of a compiled
    network runs the network's own code, which writes to its modules only at its end.
    """
    clones = {module: _clone_module(module) for module in model.modules()}
    for module, clone in clones.items():
        if clone is not module:
            clone._modules = {name: clones.get(child, child) for name, child in module._modules.items()}  # type: ignore[arg-type]
    return clones[model]


def _clone_module(module: nn.Module) -> nn.Module:
    if isinstance(module, torch.jit.ScriptModule):  # stores nothing in Python
        return module
    clone = module.__new__(type(module))
    clone.__dict__ = module.__dict__ | {name: module.__dict__[name].copy() for name in ("_parameters", "_buffers")}
    return clone


@functools.cache
def _workers(process: int, threads: int) -> tuple[ThreadPoolExecutor, ...]:
    """Return this process's workers with half of torch's threads each; a forked process has none of its parent's."""
    workers = tuple(ThreadPoolExecutor(1, thread_name_prefix="driftlaw-pass") for _ in range(MAX_THREADS))
    for worker in workers:
        worker.submit(torch.get_num_threads).result()  # the first query sets a thread's number, so it comes first
        worker.submit(torch.set_num_threads, max(threads // 2, 1)).result()
    torch.set_num_threads(threads)  # new threads start with this number
    return workers


def _call(autocast: tuple[bool, torch.dtype], function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    values = [value.result() if isinstance(value, Future) else value for value in arguments]
    enabled, dtype = autocast
    with torch.autocast("cpu", dtype, enabled=enabled, cache_enabled=False):
        return function(*values)
