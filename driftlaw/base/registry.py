"""Registry of methods by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import nn

from driftlaw.base.small_batches import BatchStatsSettings
from driftlaw.errors import unknown_name
from driftlaw.settings import merge, parse

if TYPE_CHECKING:
    from driftlaw.base.adapter import Adapter

_methods: dict[str, type[Adapter]] = {}


def register(name: str, kind: type[Adapter]) -> None:
    """Register a method under a name; a method of the same name is replaced."""
    _methods[name] = kind


def registered_methods() -> dict[str, type[Adapter]]:
    """Return the methods that have been imported so far, by name."""
    return _methods


def preset_settings(tables: Mapping[str, Any], method: str) -> dict[str, Any]:
    """Return the settings of a method in a preset: those of its table [step], then those of [methods.NAME].

    Settings of batch statistics in [step] are left out for methods that do not have them.

    Args:
        tables: the tables of the preset, or a part of them.
        method: name of the method.
    """
    fields = _methods[method].Config.model_fields if method in _methods else {}
    common = tables.get("step", {}).items()
    shared = {name: value for name, value in common if name in fields or name not in BatchStatsSettings.model_fields}
    return merge(shared, tables.get("methods", {}).get(method, {}))


def make_adapter(
    method: str | type[Adapter],
    model: nn.Module,
    settings: Mapping[str, Any],
    *,
    seed: int = 0,
    train_data: Any = None,
    group: Any = None,
) -> Adapter:
    """Return an adapter of a method around a copy of ``model``.

    Args:
        method: name of a registered method, or its class.
        model: the network.
        settings: the method's settings; defaults for those that are missing.
        seed: seed of all random numbers of the method.
        train_data: training data, for methods that need it.
        group: process group whose ranks share every batch.
    """
    if isinstance(method, str) and method not in _methods:
        raise unknown_name("method", method, sorted(_methods))
    kind = _methods[method] if isinstance(method, str) else method
    config = parse(kind.Config, settings, where=f"method {kind.name}")
    more = {} if group is None else {"group": group}  # a user's method may have an __init__ without it
    return kind(model, config, seed=seed, train_data=train_data, **more)
