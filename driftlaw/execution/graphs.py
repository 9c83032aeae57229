"""CUDA graphs: functions of tensors that are captured once and replayed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from driftlaw.errors import warn_user

EAGER_CALLS = 2  # per shape before capture: libraries choose their kernels, optimizers create their state
MAX_GRAPHS = 6  # the oldest is dropped when a stream keeps changing its shapes


class GraphCache:
    """Functions captured as CUDA graphs, one graph per key and shape of the arguments.

    A replayed graph runs no Python, and its kernels are launched at once. The first calls of every shape run eagerly.
    If a function cannot be captured, a warning is issued and it runs eagerly from then on.

    Args:
        mode: ``off`` never captures, ``on`` raises if capture fails, ``auto`` falls back.
    """

    def __init__(self, mode: Literal["auto", "on", "off"] = "off") -> None:
        self.mode: str = mode
        self.graphs: dict[tuple[Any, ...], CapturedFunction] = {}
        self.calls: dict[tuple[Any, ...], int] = {}
        self.pool: Any = None

    def __reduce__(self) -> tuple[Any, ...]:  # for copies as well: a graph belongs to the tensors it was captured with
        return GraphCache, (self.mode,)

    def clear(self) -> None:
        """Drop all graphs, because the tensors that they write to have been replaced."""
        self.graphs, self.calls, self.pool = {}, {}, None

    def run(self, key: Any, function: Callable[..., Any], *tensors: Tensor) -> Any:
        """Return ``function(*tensors)``, replayed from the third call with a key and these shapes on.

        Args:
            key: what distinguishes functions, and what else decides which operations a function runs.
            function: reads no value back to the host, draws no random numbers and changes state in place only.
            tensors: its arguments.
        """
        if self.mode == "off" or not tensors[0].is_cuda or torch.cuda.is_current_stream_capturing():
            return function(*tensors)
        key = (key, *((value.shape, value.dtype, value.stride()) for value in tensors))
        if key in self.graphs:
            return self.graphs[key].replay(tensors)
        self.calls[key] = self.calls.get(key, 0) + 1
        if self.calls[key] <= EAGER_CALLS:
            return function(*tensors)
        if len(self.graphs) >= MAX_GRAPHS:
            self.graphs.pop(next(iter(self.graphs)))
        return self._capture(key, function, tensors)

    def _capture(self, key: tuple[Any, ...], function: Callable[..., Any], tensors: tuple[Tensor, ...]) -> Any:
        try:
            captured = CapturedFunction(function, tensors, self.pool)
        except RuntimeError as error:
            if self.mode == "on":
                raise
            self.mode = "off"
            self.clear()
            torch.cuda.synchronize(tensors[0].device)
            reason = str(error).splitlines()[0]
            warn_user(
                f"CUDA graph capture failed ({reason}). Steps run without capture; results are the same, but each step "
                "is slower. Set capture='off' to silence this warning."
            )
            return function(*tensors)
        self.pool = self.pool or captured.graph.pool()
        self.graphs[key] = captured
        return captured.replay(tensors)


class CapturedFunction:
    """A function as a CUDA graph, with the tensors that the graph reads from and writes to."""

    def __init__(self, function: Callable[..., Any], tensors: tuple[Tensor, ...], pool: Any) -> None:
        self.inputs = tuple(value.clone() for value in tensors)
        self.graph = torch.cuda.CUDAGraph()
        # "thread_local": a data loader's thread may pin memory meanwhile.
        with _no_stream_warning(), torch.cuda.graph(self.graph, pool=pool, capture_error_mode="thread_local"):
            self.outputs = function(*self.inputs)

    def replay(self, tensors: tuple[Tensor, ...]) -> Any:
        """Run the graph on tensors of the same shapes; returns copies of its outputs."""
        for static, value in zip(self.inputs, tensors, strict=True):
            static.copy_(value, non_blocking=True)
        self.graph.replay()
        return tree_map_only(Tensor, Tensor.clone, self.outputs)


@contextmanager
def _no_stream_warning() -> Iterator[None]:
    """Silence autograd's warning about gradients of one weight from two streams: autograd waits for both."""
    name = "set_warn_on_accumulate_grad_stream_mismatch"  # torch 2.9 and later
    set_warning = getattr(torch.autograd.graph, name, lambda enabled: None)
    set_warning(False)
    try:
        yield
    finally:
        set_warning(True)
