"""Methods of test-time adaptation, one file each. A method is registered when its file is imported."""

import importlib
import pkgutil

from torch import nn

from driftlaw.base import Adapter, make_adapter, registered_methods
from driftlaw.base.model_copy import find_output_layer, unwrap_model
from driftlaw.execution.batch_statistics import batch_norm_layers

for module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{module.name}")


def list_methods() -> list[str]:
    """Return the names of all methods.

    >>> "law" in list_methods()
    True
    """
    return sorted(registered_methods())


def default_method(model: nn.Module) -> str:
    """Return the method that ``driftlaw.adapt`` uses for a model if none is given.

    It is ``law``. For models whose last layer is a convolution, as in networks with logits per pixel, it is ``norm`` if
    they have BatchNorm layers, because updates on a few frames did not pay on CamVid.

    >>> default_method(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 4, 1)))
    'norm'
    """
    model = unwrap_model(model)
    is_dense = isinstance(find_output_layer(model), nn.Conv2d | nn.ConvTranspose2d)
    return "norm" if is_dense and batch_norm_layers(model) else "law"


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


__all__ = ["default_method", "list_methods", "make_adapter", "method_info", "registered_methods"]
