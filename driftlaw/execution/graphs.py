"""How a step is run, which is no part of what it computes: precision, memory layout, replay as one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from pydantic import model_serializer
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from driftlaw import hardware as processor
from driftlaw.errors import warn_user
from driftlaw.settings import Settings

EAGER_STEPS = 2  # of a shape before it is captured: libraries choose their kernels, optimizers make their state
VIEWS = ("view size is not compatible", "Cannot view a tensor")  # torch's words in Tensor.view, and the compiler's
MOST_GRAPHS = 6  # the oldest goes when a stream keeps changing its shapes


class ExecutionSettings(Settings):
    """How the steps of a method are run; the defaults are what is safe and fast on the device at hand.

    Settings named in ``unsaid`` are left out of records and states while they stand at their default, so that those
    read, and compare, as they did before the settings existed.
    """

    unsaid: ClassVar[frozenset[str]] = frozenset({"precision", "channels_last", "capture", "overlap", "compiled"})

    precision: Literal["auto", "float32", "bf16"] = "auto"
    """Of the passes through the network: ``bf16`` runs them under autocast. ``auto`` does on a GPU that can, for a
    float32 network and outside of an autocast of the caller's; weights, losses and updates stay float32."""
    channels_last: Literal["auto", "on", "off"] = "auto"
    """Whether weights and images lie in memory with the channels innermost, as convolutions like it; ``auto`` does,
    unless the network is float64 or cannot."""
    capture: Literal["auto", "on", "off"] = "auto"
    """Whether a step is replayed as one CUDA graph; ``auto`` does on a GPU where method and network can."""
    overlap: bool = True
    """Whether passes of a step that do not hang on each other run side by side: in a captured step on a GPU, and on a
    CPU in threads with half of torch's each; the answers are the same but for the last digits."""
    compiled: bool = False
    """Whether torch.compile makes the passes faster, for some seconds to a minute at the first steps of every batch
    size; a network that cannot be compiled runs as written, with a warning."""

    @model_serializer(mode="wrap")
    def _without_the_unsaid(self, write: Any) -> dict[str, Any]:
        defaults = {name: type(self).model_fields[name].default for name in self.unsaid}
        return {
            name: value
            for name, value in write(self).items()
            if name not in defaults or getattr(self, name) != defaults[name]
        }


# --- precision ---------------------------------------------------------------------------------------------------


def runs_in_bf16(wanted: str, device: torch.device, dtype: torch.dtype) -> bool:
    """Tell whether passes run under our own bf16 autocast: where it is wanted, or ``auto`` and safe.

    An autocast that the caller has opened is left alone.
    """
    if wanted == "float32" or torch.is_autocast_enabled(device.type) or dtype != torch.float32:
        return False
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return wanted == "bf16" and processor.runs_bf16()


@contextmanager
def passes_in(bf16: bool, device: torch.device) -> Iterator[None]:
    """Inside, passes through a network run in bf16 if asked to; autocast casts weights at every use.

    A cast kept from before an update would be a stale weight, so none is kept.
    """
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        with torch.autocast(device.type, torch.bfloat16, enabled=True, cache_enabled=False) if bf16 else _nothing():
            yield
    finally:
        torch.set_autocast_cache_enabled(before)


@contextmanager
def _nothing() -> Iterator[None]:
    yield


# --- memory layout -----------------------------------------------------------------------------------------------


def lies_channels_last(wanted: str, model: nn.Module) -> bool:
    """Tell whether a network is laid out channels-last: where it is wanted, or ``auto`` and faster.

    Networks in float64 are left as they are: who computes in it compares digits, and the layout changes the last ones.
    """
    weights = [layer.weight for layer in model.modules() if isinstance(layer, nn.Conv2d)]
    fast = wanted == "auto" and any(weight.dtype != torch.float64 for weight in weights)
    return bool(weights) and (wanted == "on" or fast)


def wants_another_layout(error: RuntimeError) -> bool:
    """Tell whether a network failed because it looks at feature maps as if they were contiguous."""
    return any(words in str(error) for words in VIEWS)


# --- replay ------------------------------------------------------------------------------------------------------


class Replays:
    """Steps captured as CUDA graphs, one for each function and shape of its tensors.

    A captured step runs no Python and waits for nobody: its kernels are launched at once. The first steps of every
    shape are run as written. Where a step cannot be captured, a warning says so once and steps go on as written.
    """

    def __init__(self, wanted: Literal["auto", "on", "off"] = "off", overlap: bool = True) -> None:
        self.wanted, self.overlap = wanted, overlap
        self.graphs: dict[tuple[Any, ...], _Captured] = {}
        self.seen: dict[tuple[Any, ...], int] = {}
        self.pool: Any = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Replays:
        return Replays(self.wanted, self.overlap)  # a graph belongs to the tensors that it was captured with

    def __reduce__(self) -> tuple[Any, ...]:
        return Replays, (self.wanted, self.overlap)

    def forget(self) -> None:
        """Drop all graphs: the tensors that they write to have been replaced."""
        self.graphs, self.seen, self.pool = {}, {}, None

    def run(self, function: Callable[..., Any], *tensors: Tensor, variant: Any = None) -> Any:
        """Return ``function(*tensors)``; it must take and leave everything on the device and ask the host nothing.

        Args:
            function: what one step does with tensors that are there.
            tensors: its arguments.
            variant: what else, known to the host, decides what the function does.
        """
        if self.wanted == "off" or not tensors[0].is_cuda or torch.cuda.is_current_stream_capturing():
            return function(*tensors)
        key = (function.__name__, variant, *((value.shape, value.dtype, value.stride()) for value in tensors))
        if key in self.graphs:
            return self.graphs[key].replay(tensors)
        self.seen[key] = self.seen.get(key, 0) + 1
        if self.seen[key] <= EAGER_STEPS:
            return function(*tensors)
        if len(self.graphs) >= MOST_GRAPHS:
            self.graphs.pop(next(iter(self.graphs)))  # the oldest
        return self._capture(key, function, tensors)

    def beside(self, function: Callable[..., Tensor], *tensors: Tensor) -> Callable[[], Tensor]:
        """Begin ``function(*tensors)`` beside what follows; a call of what is returned waits for the answer.

        Only in a captured step is there a second stream for it. Its backward pass runs on that stream too.
        """
        if not (self.overlap and tensors[0].is_cuda and torch.cuda.is_current_stream_capturing()):
            return partial(function, *tensors)  # not before it is asked for: two graphs at a time take more memory
        main, side = torch.cuda.current_stream(), torch.cuda.Stream(tensors[0].device)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            answer = function(*tensors)

        def wait() -> Tensor:
            main.wait_stream(side)
            return answer

        return wait

    def _capture(self, key: tuple[Any, ...], function: Callable[..., Any], tensors: tuple[Tensor, ...]) -> Any:
        try:
            captured = _Captured(function, tensors, self.pool)
        except RuntimeError as error:
            if self.wanted == "on":
                raise
            self.wanted = "off"
            self.forget()
            torch.cuda.synchronize(tensors[0].device)
            reason = str(error).splitlines()[0]
            warn_user(f"this step cannot be a CUDA graph and runs as written ({reason}); said once")
            return function(*tensors)
        self.pool = self.pool or captured.graph.pool()
        self.graphs[key] = captured
        return captured.replay(tensors)


@contextmanager
def _without_stream_warning() -> Iterator[None]:
    """Inside, autograd does not warn where gradients of one weight come from two streams: it waits for both."""
    tell = getattr(torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch", lambda enabled: None)
    tell(False)
    try:
        yield
    finally:
        tell(True)


class _Captured:
    """One step as a CUDA graph: its kernels, the tensors they read from and those they answer in."""

    def __init__(self, function: Callable[..., Any], tensors: tuple[Tensor, ...], pool: Any) -> None:
        self.tensors = tuple(value.clone() for value in tensors)
        self.graph = torch.cuda.CUDAGraph()
        # Of this thread alone: a loader's thread may pin memory meanwhile.
        with _without_stream_warning(), torch.cuda.graph(self.graph, pool=pool, capture_error_mode="thread_local"):
            self.output = function(*self.tensors)

    def replay(self, tensors: tuple[Tensor, ...]) -> Any:
        """Run the step on other tensors of the same shapes; the answer is the caller's own."""
        for own, given in zip(self.tensors, tensors, strict=True):
            own.copy_(given, non_blocking=True)
        self.graph.replay()
        return tree_map_only(Tensor, Tensor.clone, self.output)
