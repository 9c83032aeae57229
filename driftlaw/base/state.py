"""State of an adapter: snapshot, restore, saving and loading, and what optimizers need for them."""

import copy
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from driftlaw.base.diagnostics import SourceModel
from driftlaw.base.saved_state import check_state
from driftlaw.base.small_batches import ImageWindow
from driftlaw.errors import UsageError, warn_user
from driftlaw.execution import Executor
from driftlaw.execution.locks import ForkSafeRLock
from driftlaw.execution.ranks import Ranks
from driftlaw.guard import Guard


class AdapterState(nn.Module):
    """The registered state of an adapter: what it consists of, and how it is reset, saved, loaded and moved."""

    name: ClassVar[str]
    model: nn.Module
    config: Any
    window: ImageWindow | None
    guard: Guard | None
    ranks: Ranks | None
    steps: int
    trainable_names: list[str]
    _executor: Executor
    _source: SourceModel
    _lock: ForkSafeRLock
    _initial_state: dict[str, Any]
    _host_cache: dict[str, Any]
    _reductions: dict[str, str | None]
    _warned: set[str]

    def trainable_parameters(self) -> list[nn.Parameter]:
        """Return the trainable parameters of the model, in the order of ``trainable_names``."""
        return [self.model.get_parameter(name) for name in self.trainable_names]

    def add_state(self, name: str, value: Tensor, *, reduce: Literal["sum", "mean"] | None = None) -> None:
        """Register a tensor that is kept between steps, reset, saved, loaded and moved with the adapter.

        Args:
            name: attribute name.
            value: initial value.
            reduce: how values of several ranks are combined; None: each rank keeps its own.
        """
        self.register_buffer(name, value)
        self._reductions[name] = reduce

    def add_parameter_state(self, *names: str) -> None:
        """Register a tensor of zeros per trainable parameter, under ``name_0``, ``name_1`` and so on, for each name."""
        for name in names:
            for index, value in enumerate(self.trainable_parameters()):
                self.add_state(f"{name}_{index}", torch.zeros_like(value))

    def parameter_state(self, name: str) -> list[Tensor]:
        """Return the tensors that ``add_parameter_state`` registered; empty if there are none."""
        values = [self._buffers.get(f"{name}_{index}") for index in range(len(self.trainable_names))]
        return [value for value in values if value is not None]

    def reset(self) -> None:
        """Return to the state after construction, bit for bit."""
        with self._lock, torch.inference_mode(False):
            restore(self, self._initial_state)
        self._warned.discard("not finite")

    def get_extra_state(self) -> dict[str, Any]:
        """Return what ``state_dict`` holds besides tensors: method, settings, steps, optimizers, generators."""
        generators = attributes_of_type(self, torch.Generator)
        return {
            "method": self.name,
            "config": self.config.model_dump(mode="json"),
            "steps": self.steps,
            "optimizers": {name: value.state_dict() for name, value in attributes_of_type(self, Optimizer).items()},
            "generators": {name: value.get_state() for name, value in generators.items()},
            **({} if self.guard is None else {"guard": self.guard.state_dict()}),
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore what ``get_extra_state`` returned."""
        self.steps = state["steps"]
        self._host_cache.clear()
        for name, optimizer in attributes_of_type(self, Optimizer).items():
            optimizer.load_state_dict(copy.deepcopy(state["optimizers"][name]))
            self._executor.graphs.clear()  # the moments are other tensors now
        self._count_steps_on_device()
        for name, generator in attributes_of_type(self, torch.Generator).items():
            generator.set_state(state["generators"][name].cpu())
        if self.guard is not None and "guard" in state:
            self.guard.load_state_dict(state["guard"])

    def state_dict(  # type: ignore[override]
        self, *, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Any]:
        """Return a copy of everything that a step may change, and of the frozen weights.

        A step of another thread ends first. Later steps do not change the copy, so it can be saved while they run.

        Args:
            destination: mapping to which the entries are added; None: a new one.
            prefix: text in front of every name.
            keep_vars: return the parameters and buffers themselves.
        """
        others = set(destination or ())
        with self._lock, torch.inference_mode(False):
            state: dict[str, Any] = super().state_dict(destination=destination, prefix=prefix, keep_vars=keep_vars)
            own = {name: value for name, value in state.items() if name not in others}
            state.update(copy.deepcopy({} if keep_vars else own))  # at once: tensors that share memory still do
            return state

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Continue from a saved state. A damaged state, or one of another method or model, is refused.

        The adapter then is what it was before. If settings differ, a warning lists them and this adapter keeps its own,
        learning rate included. Weights, moments, buffers, the number of steps and the generator are those of the state.

        Raises:
            UsageError: a list of what does not fit.
        """
        optimizers = attributes_of_type(self, Optimizer)
        with self._lock, torch.inference_mode(False):
            differing, before = check_state(self, state_dict), self.state_dict()
            attached = [(module, dict(module._parameters), dict(module._buffers)) for module in self.modules()]
            names = {value: name for name, value in self.named_parameters()}
            try:
                result = super().load_state_dict(state_dict, strict=strict, assign=assign)
            except BaseException as error:
                for module, parameters, buffers in attached:
                    module._parameters.update(parameters)
                    module._buffers.update(buffers)
                super().load_state_dict(before)
                if isinstance(error, Exception):
                    raise UsageError(f"The state cannot be loaded ({error}). The adapter was not changed.") from error
                raise
            if assign:
                self._executor.graphs.clear()
                own = dict(self.named_parameters())
                for optimizer in optimizers.values():
                    replace_parameters(optimizer, {value: own[name] for value, name in names.items()})
            if differing:
                for name, optimizer in optimizers.items():
                    load_options(optimizer, self._initial_state["extra"]["optimizers"][name])
                self._count_steps_on_device()
            keep_own_source(self, before)
        return result

    def _count_steps_on_device(self) -> None:
        for optimizer in attributes_of_type(self, Optimizer).values():
            count_steps_on_device(optimizer)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        if fn(torch.zeros(1, dtype=torch.float32)).dtype in (torch.float16, torch.bfloat16):
            raise UsageError(
                "The weights of an adapter stay float32, because 16 bits lose most updates. Set precision='bf16' for "
                "faster passes, or create the adapter from a float16 or bfloat16 model."
            )
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._initial_state["tensors"] = {name: fn(value) for name, value in self._initial_state["tensors"].items()}
        self._source.move(fn)
        for optimizer in attributes_of_type(self, Optimizer).values():
            optimizer.load_state_dict(optimizer.state_dict())  # moves its moments to the parameters' device
        self._count_steps_on_device()
        self._executor.model_moved(self.model)
        return self


def attributes_of_type(adapter: nn.Module, kind: type) -> dict[str, Any]:
    """Return the attributes of an adapter that are instances of a type, by name."""
    return {name: value for name, value in vars(adapter).items() if isinstance(value, kind)}


def snapshot(adapter: AdapterState) -> dict[str, Any]:
    """Return a copy of everything that a step may change: trainable parameters, buffers, optimizers, generators.

    Frozen parameters of the model are left out, so that a snapshot does not need the memory of a second model.
    """
    frozen = {f"model.{name}" for name, value in adapter.model.named_parameters() if not value.requires_grad}
    named = [*adapter.named_parameters(), *adapter.named_buffers()]
    tensors = {name: value.detach() for name, value in named if name not in frozen}
    return copy.deepcopy({"tensors": tensors, "extra": adapter.get_extra_state()})


@torch.no_grad()
def restore(adapter: AdapterState, state: Mapping[str, Any]) -> None:
    """Set an adapter back, in place, to what ``snapshot`` returned; its image window is emptied."""
    if adapter.window is not None:
        adapter.window.clear()
    own = dict([*adapter.named_parameters(), *adapter.named_buffers()])
    for name, value in state["tensors"].items():
        if own[name].shape != value.shape:  # a buffer that got its size from the first batch
            own[name].resize_(value.shape)
        own[name].copy_(value)
    adapter.set_extra_state(state["extra"])


def keep_own_source(adapter: AdapterState, before: Mapping[str, Any]) -> None:
    """Add frozen weights that a state of another source model replaced to the initial state, for a complete reset.

    Args:
        adapter: adapter that has loaded a state.
        before: its own state before that.
    """
    initial = adapter._initial_state["tensors"]
    frozen = {f"model.{name}": value for name, value in adapter.model.named_parameters()}
    replaced = [name for name, value in frozen.items() if name not in initial and not torch.equal(value, before[name])]
    if replaced:
        initial |= {name: before[name] for name in replaced}
        warn_user(
            f"The saved state comes from a different source model (frozen parameter {replaced[0]} differs). All "
            "weights were loaded from the state. reset() still returns to the model this adapter was created with."
        )


# --- optimizers --------------------------------------------------------------------------------------------------


def replace_parameters(optimizer: Optimizer, replacements: Mapping[Tensor, Tensor]) -> None:
    """Let an optimizer update other tensors instead of its own, with the moments it has for those."""
    for group in optimizer.param_groups:
        for index, value in enumerate(group["params"]):
            other = replacements.get(value, value)
            if other is not value:
                group["params"][index] = other
                if value in optimizer.state:
                    optimizer.state[other] = optimizer.state.pop(value)


def load_options(optimizer: Optimizer, state: Mapping[str, Any]) -> None:
    """Load the learning rates and other options of a state into an optimizer; its moments stay."""
    for group, saved in zip(optimizer.param_groups, state["param_groups"], strict=True):
        group.update({key: value for key, value in saved.items() if key != "params"})


def count_steps_on_device(optimizer: Optimizer) -> None:
    """Let an optimizer count steps on the device of its parameters, because a CUDA graph cannot read the host."""
    for group in optimizer.param_groups:
        if "capturable" not in group:  # SGD counts nothing
            continue
        group["capturable"] = any(value.is_cuda for value in group["params"])
        for value in group["params"]:
            moments = optimizer.state.get(value, {})
            if isinstance(moments.get("step"), Tensor):
                moments["step"] = moments["step"].to(value.device if group["capturable"] else "cpu")
