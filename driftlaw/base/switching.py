"""Switching of one adapter between streams: what a stream owns, as tensors by name and as JSON data."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from driftlaw.base.adapter import Adapter
from driftlaw.base.inputs import RangeCheck
from driftlaw.base.monitoring import History
from driftlaw.base.state import attributes_of_type
from driftlaw.guard.transaction import PendingFlags, changing_tensors

BEFORE, GOOD = "before_update.", "guard.good."  # start of the names of tensors
HostObjects = tuple[RangeCheck, PendingFlags, set[str]]
"""Small objects of a stream that stay in host memory and are not saved."""


def stream_state(adapter: Adapter) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return everything that the steps of a stream change: the tensors themselves, and the rest as JSON data.

    It is what ``state_dict`` returns without frozen weights and settings, and what ``summary`` and the guard need from
    earlier steps. The images that ``summary`` compares with the source model are left out.
    """
    tensors, history = changing_tensors(adapter), adapter._history
    generators, optimizers = (attributes_of_type(adapter, kind) for kind in (torch.Generator, Optimizer))
    plain: dict[str, Any] = {
        "steps": adapter.steps,
        "generators": {name: value.get_state().numpy().tobytes().hex() for name, value in generators.items()},
        "options": {
            name: [{key: value for key, value in group.items() if type(value) in (int, float)} for group in groups]
            for name, groups in ((name, value.param_groups) for name, value in optimizers.items())
        },
        "history": [history.steps, history.count, history.images],
    }
    if history.count:
        tensors |= {"history.first": history.first, "history.last": history.last}
    if adapter.window is not None:
        plain["window"] = adapter.window.get_extra_state()
        tensors["window.images"] = plain["window"].pop("images")
    if adapter.guard is not None:
        plain["guard"] = state = adapter.guard.state_dict()
        tensors |= {GOOD + name: value for name, value in state.pop("good").items()}
        tensors |= {BEFORE + name: value for name, value in adapter.tensors_before_update().items()}
        for key in ("sample", "logits"):
            tensors |= {f"guard.{key}.{index}": value for index, value in enumerate(state.pop(key))}
        state["signals"] = [value.tolist() for value in state["signals"]]
    return tensors, plain


@torch.no_grad()
def load_stream(adapter: Adapter, tensors: dict[str, Tensor], plain: Any, objects: HostObjects | None) -> HostObjects:
    """Put a copy of what ``stream_state`` returned into an adapter, and return the objects that it uses from now on.

    Tensors are written in place, so that CUDA graphs stay valid. A new stream has no objects yet.
    """
    objects = objects or (RangeCheck(), PendingFlags(), set())
    adapter.inputs._range_check, adapter._updates, adapter._warned = objects
    adapter._host_cache.clear()
    adapter.steps = plain["steps"]
    own = changing_tensors(adapter)
    for attribute, optimizer in attributes_of_type(adapter, Optimizer).items():
        for group, options in zip(optimizer.param_groups, plain["options"][attribute], strict=True):
            group.update(options)
        parameters = [value for group in optimizer.param_groups for value in group["params"]]
        for name in [name for name in own | tensors if name.startswith(f"{attribute}.")]:
            parameter, key = parameters[int(name.split(".")[1])], name.split(".")[2]
            if name in tensors and name not in own:
                like = parameter if tensors[name].shape == parameter.shape else tensors[name]
                own[name] = optimizer.state[parameter][key] = torch.empty_like(like, dtype=tensors[name].dtype)
            elif name not in tensors and parameter.is_cuda:
                own[name].zero_()  # graphs use it; Adam and SGD without dampening start from 0
            elif name not in tensors:
                optimizer.state.pop(parameter, None)
    pairs = [(value, tensors[name]) for name, value in own.items() if name in tensors]
    if pairs:  # some buffers get their size from a batch
        torch._foreach_copy_([value.resize_(given.shape) for value, given in pairs], [given for _, given in pairs])
    adapter._count_steps_on_device()
    for name, generator in attributes_of_type(adapter, torch.Generator).items():
        generator.set_state(torch.tensor(list(bytes.fromhex(plain["generators"][name])), dtype=torch.uint8))
    if adapter.window is not None:
        adapter.window.set_extra_state({"images": tensors["window.images"], **plain["window"]})
    history = adapter._history = History()
    history.steps, history.count, history.images = plain["history"]
    if history.count:
        history.first, history.last = tensors["history.first"].clone(), tensors["history.last"].clone()
    if adapter.guard is not None:
        state = {**plain["guard"], "good": _named(tensors, GOOD)}
        state["signals"] = [torch.tensor(value, dtype=torch.float64) for value in state["signals"]]
        for key in ("sample", "logits"):
            found = _named(tensors, f"guard.{key}.")
            state[key] = [found[str(index)].clone() for index in range(len(found))]
        adapter.guard.load_state_dict(state)
        adapter.guard.step_events = []
        copies, before = adapter._transaction.before, _named(tensors, BEFORE)
        if before or any(value.is_cuda for value in copies.copies.values()):  # graphs write to the copies
            copies.save(before or changing_tensors(adapter))
        else:
            copies.copies = {}
    return objects


def _named(tensors: Mapping[str, Tensor], start: str) -> dict[str, Tensor]:
    return {name.removeprefix(start): value for name, value in tensors.items() if name.startswith(start)}
