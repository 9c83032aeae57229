"""Networks compiled by torch.compile, with less to read on the way back, for steps that may go back twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from types import FunctionType
from typing import Any

import torch
from torch import nn
from torch.torch_version import TorchVersion

from driftlaw.errors import warn_user

WEIGHTS_AS_INPUTS = TorchVersion(torch.__version__) >= "2.5"  # before, a compiled network kept those it was born with
CPP_ALONE = "2.13"  # the first torch that was seen to compile both passes of a network without Python around them
MOST_SHAPES = 64  # of batches and networks, of all adapters of a process that share a network's class
READS = 8  # what an expression may read and still be made anew where it is used: a mask of ReLU reads six things


def compile_network(model: nn.Module) -> bool:
    """Compile a network in place, every shape of a batch for itself; tell whether that can be done here."""
    on_cpu = all(value.device.type == "cpu" for value in model.parameters())
    if on_cpu and not has_cpp_compiler():
        told = "compiled: there is no C++ compiler here (g++, or what CXX names)"
        warn_user(f"{told}; steps run as written")
        return False
    model._compiled_call_impl = partial(_compiled_call(type(model), on_cpu), model)  # as Module.compile, but see _call
    return True


def compiler_errors() -> tuple[type[Exception], ...]:
    """Return what torch.compile raises where it cannot compile a network."""
    from torch._dynamo.exc import TorchDynamoException

    return (TorchDynamoException,)


@cache
def fused(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of tensors compiled into few kernels, every set of shapes for itself."""
    return torch.compile(function, dynamic=False)


@contextmanager
def running_compiled(compiled: bool) -> Iterator[None]:
    """Inside, a compiled network keeps what it needs to go backwards twice, as LAW does; torch asks in every thread.

    And more shapes may be compiled than torch would, before it runs a network as written without a word.
    """
    if not compiled:
        yield
        return
    import torch._dynamo.config
    import torch._functorch.config

    limit = "recompile_limit" if hasattr(torch._dynamo.config, "recompile_limit") else "cache_size_limit"
    shapes = torch._dynamo.config.patch({limit: MOST_SHAPES})  # type: ignore[attr-defined]
    kept = {"donated_buffer": False} if hasattr(torch._functorch.config, "donated_buffer") else {}
    with shapes, torch._functorch.config.patch(kept):  # type: ignore[attr-defined]
        yield


def has_cpp_compiler() -> bool:
    """Tell whether torch.compile finds what it builds code for a CPU with; of a torch that cannot be asked, hope so."""
    try:
        from torch._inductor import exc
        from torch._inductor.cpp_builder import get_cpp_compiler
    except ImportError:
        return True
    try:
        get_cpp_compiler()
    except (exc.InvalidCxxCompiler, RuntimeError):
        return False
    return True


def _call(model: nn.Module, *arguments: Any, **named: Any) -> Any:
    """Call a network with its hooks.

    A function of ours to compile: torch before 2.13 would not look into what torch itself wrote, such as a Sequential.
    """
    return model._call_impl(*arguments, **named)


@cache
def _compiled_call(kind: type[nn.Module], on_cpu: bool) -> Callable[..., Any]:
    """Return ``_call`` compiled, the same for all networks of a class: adapters share what was compiled for one.

    Every class has code of its own, as torch counts the shapes that it compiles by code.
    """
    own = FunctionType(_call.__code__.replace(), globals())
    return torch.compile(own, dynamic=False, options=_options(on_cpu))


def _options(on_cpu: bool) -> dict[str, Any]:
    """Return how inductor is to compile; an older torch does without what it does not know."""
    options: dict[str, Any] = {"cpp.dynamic_threads": True}  # lanes have fewer threads than the step around them
    try:
        from torch._inductor.custom_graph_pass import CustomGraphPass
    except ImportError:
        return options

    class MasksFromInputs(CustomGraphPass):
        """Does for inductor what ``take_masks_from_inputs`` does."""

        def __call__(self, graph: torch.fx.Graph) -> None:
            take_masks_from_inputs(graph)

        def uuid(self) -> str:
            return f"{__name__} 1"  # of what a cache keeps: count on when the pass changes

    options |= {"joint_custom_pre_pass": MasksFromInputs(), "realize_reads_threshold": READS}
    # Code in C++ alone does not hold up Python's other threads, the lanes.
    return options | {"cpp_wrapper": on_cpu and TorchVersion(torch.__version__) >= CPP_ALONE}


def take_masks_from_inputs(graph: torch.fx.Graph) -> None:
    """Ask the input of every ReLU, not its output, where it was closed: the answers are the same.

    The way back through norm and ReLU then reads the norm layer's input alone, which it needs anyway, and no longer
    the ReLU's output beside it.
    """
    aten = torch.ops.aten
    for node in graph.find_nodes(op="call_function", target=aten.le.Scalar):
        asked, threshold = node.args
        while asked.target in (aten.alias.default, aten.detach.default):
            (asked,) = asked.args
        if asked.target is aten.relu.default and threshold == 0:
            node.args = (*asked.args, threshold)
    graph.eliminate_dead_code()
