"""Switching of one adapter between streams: what a stream owns, as tensors by name and as JSON data."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from driftlaw.base.adapter import Adapter
from driftlaw.base.inputs import RangeCheck
from driftlaw.base.monitoring import History
from driftlaw.base.state import attributes_of_type
from driftlaw.errors import UsageError
from driftlaw.guard.transaction import PendingFlags, changing_tensors

GUARD_LISTS = ("sample", "logits")  # lists of tensors on the device of the model
BEFORE, GOOD = "before_update.", "guard.good."  # in front of the names of tensors


@dataclass
class HostObjects:
    """Small objects of a stream that stay in host memory and are not saved."""

    range_check: RangeCheck = field(default_factory=RangeCheck)
    updates: PendingFlags = field(default_factory=PendingFlags)
    warned: set[str] = field(default_factory=set)

    def attach(self, adapter: Adapter) -> None:
        """Let an adapter use these objects."""
        adapter.inputs._range_check, adapter._updates, adapter._warned = self.range_check, self.updates, self.warned


def stream_state(adapter: Adapter) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return everything that the steps of a stream change: the tensors themselves, and the rest as JSON data.

    It is what ``state_dict`` returns without frozen weights and settings, and what ``summary`` and the guard need from
    earlier steps. The images that ``summary`` compares with the source model are left out.

    Raises:
        UsageError: an optimizer keeps something other than tensors.
    """
    tensors, history, guard = changing_tensors(adapter), adapter._history, adapter.guard
    optimizers = attributes_of_type(adapter, Optimizer)
    moments = [value for each in optimizers.values() for state in each.state.values() for value in state.values()]
    if not all(isinstance(value, Tensor) for value in moments):
        raise UsageError("The state of the optimizer is not only tensors. Use an optimizer such as Adam or SGD.")
    generators = attributes_of_type(adapter, torch.Generator)
    plain: dict[str, Any] = {
        "steps": adapter.steps,
        "generators": {name: _to_text(value.get_state()) for name, value in generators.items()},
        "options": {name: [_numbers(group) for group in each.param_groups] for name, each in optimizers.items()},
        "history": [history.steps, history.count, history.images],
    }
    if adapter.window is not None:
        rest = adapter.window.get_extra_state()
        tensors["window.images"] = rest.pop("images")
        plain["window"] = rest
    if history.count:
        tensors |= {"history.first": history.first, "history.last": history.last}
    if guard is not None:
        state = guard.state_dict()
        tensors |= {f"{GOOD}{name}": value for name, value in state.pop("good").items()}
        tensors |= {f"{BEFORE}{name}": value for name, value in adapter.tensors_before_update().items()}
        for key in GUARD_LISTS:
            tensors |= {f"guard.{key}.{index}": value for index, value in enumerate(state.pop(key))}
        plain["guard"] = state | {"signals": [value.tolist() for value in state["signals"]]}
    return tensors, plain


@torch.no_grad()
def load_stream_state(adapter: Adapter, tensors: Mapping[str, Tensor], plain: Mapping[str, Any]) -> None:
    """Put the state of a stream into an adapter. Tensors are written in place, so that CUDA graphs stay valid.

    Args:
        adapter: the adapter.
        tensors: what ``stream_state`` returned; it is copied.
        plain: its second result.
    """
    own = changing_tensors(adapter)
    _load_moments(adapter, own, tensors)
    pairs = [(value, tensors[name]) for name, value in own.items() if name in tensors]
    for value, given in pairs:
        if value.shape != given.shape:  # a buffer that got its size from a batch
            value.resize_(given.shape)
    if pairs:
        torch._foreach_copy_([value for value, _ in pairs], [given for _, given in pairs])
    adapter._count_steps_on_device()
    adapter._host_cache.clear()
    adapter.steps = plain["steps"]
    for name, generator in attributes_of_type(adapter, torch.Generator).items():
        generator.set_state(torch.frombuffer(bytearray(base64.b64decode(plain["generators"][name])), dtype=torch.uint8))
    for name, optimizer in attributes_of_type(adapter, Optimizer).items():
        for group, options in zip(optimizer.param_groups, plain["options"][name], strict=True):
            group.update(options)
    if adapter.window is not None:
        adapter.window.set_extra_state({"images": tensors["window.images"], **plain["window"]})
    history = adapter._history = History()
    history.steps, history.count, history.images = plain["history"]
    if history.count:
        history.first, history.last = tensors["history.first"].clone(), tensors["history.last"].clone()
    if adapter.guard is not None:
        _load_guard(adapter, tensors, plain["guard"])


def _load_moments(adapter: Adapter, own: dict[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    """Create the moments that a stream has and an adapter lacks, and remove those that a stream does not have."""
    for attribute, optimizer in attributes_of_type(adapter, Optimizer).items():
        parameters = [value for group in optimizer.param_groups for value in group["params"]]
        for name in [name for name in {**own, **tensors} if name.startswith(f"{attribute}.")]:
            _, index, key = name.split(".")
            parameter = parameters[int(index)]
            if name in tensors and name not in own:
                given = tensors[name]
                like = parameter if given.shape == parameter.shape else given
                optimizer.state[parameter][key] = torch.empty_like(like, dtype=given.dtype).copy_(given)
            elif name not in tensors and own[name].is_cuda:
                own[name].zero_()  # graphs use it; Adam and SGD without dampening start from 0
            elif name not in tensors:
                optimizer.state.pop(parameter, None)


def _load_guard(adapter: Adapter, tensors: Mapping[str, Tensor], plain: Mapping[str, Any]) -> None:
    assert adapter.guard is not None
    state: dict[str, Any] = dict(plain)
    state["signals"] = [torch.tensor(value, dtype=torch.float64) for value in plain["signals"]]
    state["good"] = {name.removeprefix(GOOD): value for name, value in tensors.items() if name.startswith(GOOD)}
    for key in GUARD_LISTS:
        state[key] = [value.clone() for name, value in tensors.items() if name.startswith(f"guard.{key}.")]
    adapter.guard.load_state_dict(state)
    adapter.guard.step_events = []
    copies = adapter._transaction.before
    before = {name.removeprefix(BEFORE): value for name, value in tensors.items() if name.startswith(BEFORE)}
    if before:
        copies.save(before)
    elif any(value.is_cuda for value in copies.copies.values()):
        copies.save(changing_tensors(adapter))  # graphs write to the copies; the state is the initial one
    else:
        copies.copies = {}


def _numbers(group: Mapping[str, Any]) -> dict[str, float]:
    return {key: value for key, value in group.items() if type(value) in (int, float)}


def _to_text(value: Tensor) -> str:
    return base64.b64encode(value.numpy().tobytes()).decode()
