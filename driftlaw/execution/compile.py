"""Compilation with torch.compile, for steps that may run backward twice through the same graph."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial, wraps
from types import FunctionType
from typing import Any, ParamSpec, TypeVar

import torch
from torch import nn
from torch.torch_version import TorchVersion

from driftlaw.errors import UsageError, warn_user

WEIGHTS_AS_INPUTS = TorchVersion(torch.__version__) >= "2.5"  # earlier, compiled networks kept their first weights
CPP_WRAPPER = "2.13"  # the first torch that was seen to compile both passes of a network without Python around them
MAX_SHAPES = 64  # of batches and networks, over all adapters of a process that share a network's class
READS = 8  # an expression that reads at most this many values is recomputed where it is used; a ReLU mask reads six

P = ParamSpec("P")
R = TypeVar("R")
_fuse: ContextVar[bool] = ContextVar("fuse", default=False)


def compile_network(model: nn.Module) -> bool:
    """Compile a network in place, once per batch shape. Returns False, with a warning, if there is no compiler."""
    on_cpu = all(value.device.type == "cpu" for value in model.parameters())
    if on_cpu and not has_cpp_compiler():
        warn_user(
            "compiled=True needs a C++ compiler (g++, or the one named by CXX), and none was found. Steps run eagerly."
        )
        return False
    call = _compiled_call(type(model), on_cpu)  # type: ignore[arg-type]  # mypy does not see that classes are hashable
    model._compiled_call_impl = partial(call, model)  # like Module.compile; see _call
    return True


def run_eagerly(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator for a function that runs eagerly, also if torch.compile was called on a module that uses it."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if getattr(torch.compiler, "is_exporting", lambda: False)():  # torch 2.7 and later
            raise UsageError("An adapter updates itself and cannot be exported. Use driftlaw.export.export_adapter.")
        if torch.compiler.is_compiling():  # torch.compiler.disable takes a second to import
            return torch.compiler.disable(function)(*args, **kwargs)  # type: ignore[no-any-return]
        return function(*args, **kwargs)

    return call


def fusable(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator for a function of tensors that is compiled into few kernels inside ``fusing(True)``.

    Every set of shapes is compiled separately, so that a function should be called with few.
    """
    compiled = cache(lambda: torch.compile(function, dynamic=False))

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return compiled()(*args, **kwargs) if _fuse.get() else function(*args, **kwargs)

    return call


@contextmanager
def fusing(enabled: bool) -> Iterator[None]:
    """Context manager in which ``fusable`` functions are compiled, if enabled."""
    token = _fuse.set(enabled)
    try:
        yield
    finally:
        _fuse.reset(token)


@contextmanager
def compile_context(compiled: bool) -> Iterator[None]:
    """Context manager in which a compiled network keeps what it needs to run backward twice, as LAW does.

    It also raises the number of shapes that torch compiles before it silently runs a network eagerly. If the network is
    not compiled, nothing changes.
    """
    if not compiled:
        yield
        return
    import torch._dynamo.config
    import torch._functorch.config

    limit = "recompile_limit" if hasattr(torch._dynamo.config, "recompile_limit") else "cache_size_limit"
    shapes = torch._dynamo.config.patch({limit: MAX_SHAPES})
    kept = {"donated_buffer": False} if hasattr(torch._functorch.config, "donated_buffer") else {}
    with shapes, torch._functorch.config.patch(kept):
        yield


def has_cpp_compiler() -> bool:
    """Return True if torch.compile finds a C++ compiler, or if this torch cannot be asked."""
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


def _call(model: nn.Module, *arguments: Any, **keywords: Any) -> Any:
    """Call a network with its hooks.

    torch before 2.13 does not compile functions that torch itself defines, such as ``Sequential.forward``. It compiles
    this one.
    """
    return model._call_impl(*arguments, **keywords)


@cache
def _compiled_call(kind: type[nn.Module], on_cpu: bool) -> Callable[..., Any]:
    """Return ``_call`` compiled, the same for all networks of a class, so that adapters share compiled code.

    Every class has a code object of its own, because torch counts compiled shapes per code object.
    """
    function = FunctionType(_call.__code__.replace(), globals())
    return torch.compile(function, dynamic=False, options=_inductor_options(on_cpu))


def _inductor_options(on_cpu: bool) -> dict[str, Any]:
    """Return options for inductor; those that an older torch does not know are left out."""
    options: dict[str, Any] = {"cpp.dynamic_threads": True}  # engines run passes with fewer threads
    try:
        from torch._inductor.custom_graph_pass import CustomGraphPass
    except ImportError:
        return options

    class ReluMaskPass(CustomGraphPass):
        """Applies ``relu_mask_from_input``."""

        def __call__(self, graph: torch.fx.Graph) -> None:
            relu_mask_from_input(graph)

        def uuid(self) -> str:
            return f"{__name__} 1"  # key of inductor's cache: increase it when the pass changes

    options |= {"joint_custom_pre_pass": ReluMaskPass(), "realize_reads_threshold": READS}
    # Code in C++ alone does not block Python's other threads.
    return options | {"cpp_wrapper": on_cpu and TorchVersion(torch.__version__) >= CPP_WRAPPER}


def relu_mask_from_input(graph: torch.fx.Graph) -> None:
    """Compute the mask of every ReLU from its input instead of its output; the values are the same.

    The backward pass through norm layer and ReLU then reads only the norm layer's input, which it needs anyway.
    """
    aten = torch.ops.aten
    for node in graph.find_nodes(op="call_function", target=aten.le.Scalar):
        value, threshold = node.args
        while value.target in (aten.alias.default, aten.detach.default):
            (value,) = value.args
        if value.target is aten.relu.default and threshold == 0:
            node.args = (*value.args, threshold)
    graph.eliminate_dead_code()
