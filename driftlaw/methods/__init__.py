"""The methods, one file each; a method is found because its file is here."""

from __future__ import annotations

import importlib
import pkgutil

from driftlaw.base import Adapter, make_adapter, registered_methods


def _import_all() -> None:
    for found in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{found.name}")


_import_all()


def list_methods() -> list[str]:
    """Return the names of all methods."""
    return sorted(registered_methods())


def method_info(kind: type[Adapter]) -> dict[str, object]:
    """Return what a method declares of itself, as plain data."""
    return {
        "name": kind.name,
        "title": kind.title,
        "paper": kind.paper,
        "needs_source": kind.needs_train_data,
        "adapts": kind.adapts,
        "forward_units": kind.forward_cost,
        "backward_units": kind.backward_cost,
        # Every default: what records leave out as long as nobody changes it is named here.
        "settings": {name: entry.get_default() for name, entry in kind.Config.model_fields.items()},
    }


__all__ = ["list_methods", "make_adapter", "method_info", "registered_methods"]
