"""Methods of test-time adaptation, one file each. A method is registered when its file is imported."""

import importlib
import pkgutil

from driftlaw.base import Adapter, make_adapter, registered_methods

for module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{module.name}")


def list_methods() -> list[str]:
    """Return the names of all methods.

    >>> "law" in list_methods()
    True
    """
    return sorted(registered_methods())


def method_info(kind: type[Adapter]) -> dict[str, object]:
    """Return the metadata and default settings of a method, as plain data."""
    return {
        "name": kind.name,
        "title": kind.title,
        "paper": kind.paper,
        "needs_source": kind.needs_train_data,
        "adapts": kind.adapts,
        "classification_only": kind.classification_only,
        "forward_units": kind.forward_cost,
        "backward_units": kind.backward_cost,
        "settings": {name: entry.get_default() for name, entry in kind.Config.model_fields.items()},
    }


__all__ = ["list_methods", "make_adapter", "method_info", "registered_methods"]
