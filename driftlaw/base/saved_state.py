"""Checks of a saved state: types, shapes and values of all entries, before anything is loaded."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from pydantic import JsonValue, TypeAdapter, ValidationError
from torch import Tensor, nn
from torch.optim import Optimizer

from driftlaw.errors import UsageError, combined_error, warn_user
from driftlaw.settings import Settings

EXTRA_KEYS = {"method", "config", "steps", "optimizers", "generators"}
MAX_PROBLEMS = 8  # listed in one error
MISSING = object()  # an entry of one state that the other does not have


def check_state(adapter: Any, state_dict: Mapping[str, Any]) -> list[str]:
    """Raise if a saved state does not belong to an adapter or is damaged.

    Every entry must have the type, shape and dtype of the adapter's own. Values must be finite, unless those after
    construction were not.

    Args:
        adapter: the adapter that the state will be loaded into; it is not changed.
        state_dict: what the ``state_dict`` of an adapter returned.

    Returns:
        The settings that differ, after a warning about them.
    """
    extra = state_dict.get("_extra_state") if isinstance(state_dict, Mapping) else None
    if not isinstance(extra, Mapping) or not set(extra) >= EXTRA_KEYS or not isinstance(extra["method"], str):
        raise UsageError("The state does not name a method. Pass what an adapter's state_dict() returned.")
    if extra["method"] != adapter.name:
        raise UsageError(
            f"The state was saved by method '{extra['method']}', but this adapter uses '{adapter.name}'. Create the "
            f"adapter with method='{extra['method']}'."
        )
    try:
        config = TypeAdapter(dict[str, JsonValue]).validate_python(extra["config"])
    except ValidationError:
        raise UsageError("The settings in the state are damaged. Load a state that was saved earlier.") from None
    differing = _differing_settings(adapter.config, config)
    if differing:
        warn_user(
            f"The saved state was made with other settings: {', '.join(differing)}. This adapter keeps its own "
            "settings; weights and optimizer moments are loaded."
        )
    if adapter.guard is not None and "guard" in extra:
        adapter.guard.check_state(adapter, extra["guard"])
    own, given = nn.Module.state_dict(adapter), dict(state_dict)
    for state in (own, given):
        state["_extra_state"] = {key: state["_extra_state"][key] for key in EXTRA_KEYS - {"config"}}
    _expect_moments(adapter, own["_extra_state"]["optimizers"], extra["optimizers"])
    problems = list(_problems(dict(_entries(own)), dict(_entries(given)), adapter._initial_state["tensors"]))
    if problems:
        cause = "is damaged or belongs to another model"
        if differing:
            cause = f"was made with other settings ({', '.join(differing)})"
        raise combined_error(f"The state {cause} and does not fit:", problems[:MAX_PROBLEMS])
    return differing


def _differing_settings(config: Settings, saved: Mapping[str, Any]) -> list[str]:
    to_json = TypeAdapter(Any).dump_python
    fields = type(config).model_fields
    own = {name: to_json(getattr(config, name), mode="json") for name in fields}
    absent = {name: to_json(entry.get_default(), mode="json") for name, entry in fields.items()}
    then = absent | getattr(config, "value_if_absent", {}) | {name: saved[name] for name in fields if name in saved}
    return [f"{name} ({then[name]} saved, {own[name]} here)" for name in own if then[name] != own[name]]


def _expect_moments(adapter: nn.Module, own: Mapping[str, Any], given: Any) -> None:
    """Replace the moments in the state of each own optimizer by those that a saved one must have: all or none."""
    for name, state in own.items():
        saved = given.get(name) if isinstance(given, Mapping) else None
        entries = saved.get("state") if isinstance(saved, Mapping) else None
        optimizer: Optimizer = getattr(adapter, name)
        expected: list[dict[str, Any]] = []
        for group in optimizer.param_groups:
            moments = _moments_after_step(optimizer, group)
            for value in group["params"]:
                expected.append({key: value if moment.ndim else moment for key, moment in moments.items()})
        state["state"] = {}
        for index, entry in entries.items() if isinstance(entries, Mapping) else ():
            if isinstance(entry, Mapping) and index in range(len(expected)):
                state["state"][index] = expected[index] if entry else {}


def _moments_after_step(optimizer: Optimizer, group: Mapping[str, Any]) -> dict[str, Any]:
    """Return the moments of a parameter of one value after a step with the options of a group."""
    value = torch.zeros(1, requires_grad=True)
    value.grad = torch.zeros(1)
    probe = copy.copy(optimizer)
    probe.param_groups, probe.state = [{**group, "params": [value], "capturable": False}], defaultdict(dict)
    probe.step()
    return dict(probe.state[value])


def _entries(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values in nested mappings and sequences with their paths; an empty one is a value."""
    if isinstance(value, Mapping) and value:
        for key, child in value.items():
            yield from _entries(child, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple) and value:
        yield from _entries(dict(enumerate(value)), path)
    else:
        yield path, value


def _problems(own: Mapping[str, Any], given: Mapping[str, Any], initial: Mapping[str, Tensor]) -> Iterator[str]:
    for path in {**own, **given}:
        expected, found = own.get(path, MISSING), given.get(path, MISSING)
        resizable = "._extra_state." in path  # images of a module, which checks their number when it loads them
        if not _fits(expected, found, resizable):
            yield f"{path}: expected {_describe(expected, found)}, found {_describe(found, expected)}"
        elif ".param_groups." in path and found != expected and (isinstance(found, bool) or ".params." in path):
            if not path.endswith(".capturable"):  # depends on the device
                yield f"{path}: expected {expected}, found {found}"
        elif path.endswith(".step") and found < 0:
            yield f"{path}: expected 0 or more, found {float(found)}"
        elif isinstance(found, Tensor) and not (valid := found.isfinite()).all():
            reference = expected if resizable else initial.get(path, expected)
            if reference.shape != found.shape or not (valid | ~reference.isfinite().to(valid.device)).all():
                yield f"{path}: some values are NaN or infinite"


def _fits(expected: Any, found: Any, resizable: bool) -> bool:
    if isinstance(expected, Tensor) and isinstance(found, Tensor):
        if found.layout != torch.strided or found.is_meta:
            return False
        return expected.dtype == found.dtype and (resizable or expected.shape == found.shape)
    if type(expected) in (int, float) and type(found) in (int, type(expected)):
        return bool(abs(found) < 2**63 and (found >= 0 or expected < 0))  # False for NaN and infinity
    return type(expected) is type(found) is not object


def _describe(value: Any, other: Any) -> str:
    if value is MISSING:
        return "nothing"
    if isinstance(value, Tensor):
        same_shape = isinstance(other, Tensor) and value.shape == other.shape
        return f"{tuple(value.shape)}{f' of {value.dtype}' if same_shape else ''}"
    return f"{value!r:.40}" if isinstance(value, int | float | str) else type(value).__name__
