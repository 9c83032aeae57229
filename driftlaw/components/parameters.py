"""Selection of trainable parameters by the kind of layer, in the order of the model."""

from collections.abc import Collection, Iterable
from itertools import takewhile

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from driftlaw.components.features import find_head
from driftlaw.errors import UsageError

NORM_LAYERS: tuple[type[nn.Module], ...] = (_BatchNorm, nn.GroupNorm, nn.LayerNorm)
LAYERS_BY_KIND: dict[str, tuple[type[nn.Module], ...]] = {
    "conv": (nn.Conv2d,),
    "norm": NORM_LAYERS,
    "linear": (nn.Linear, nn.MultiheadAttention),  # MultiheadAttention has its input projections as own parameters
}


def select_parameters(model: nn.Module, kinds: Iterable[str]) -> dict[str, nn.Parameter]:
    """Return the direct parameters (weights and biases) of all layers of the given kinds, by name.

    Args:
        model: the model.
        kinds: keys of ``LAYERS_BY_KIND``.

    >>> list(select_parameters(nn.Sequential(nn.Conv2d(3, 2, 1), nn.BatchNorm2d(2)), ["norm"]))
    ['1.weight', '1.bias']
    """
    layers = tuple(layer for kind in kinds for layer in LAYERS_BY_KIND[kind])
    selected: dict[str, nn.Parameter] = {}
    for prefix, module in model.named_modules():
        if isinstance(module, layers):
            selected |= dict(module.named_parameters(prefix, recurse=False))
    return selected


def adapt_layers(model: nn.Module, layers: Collection[str]) -> None:
    """Make the parameters of the given kinds of layers trainable.

    Args:
        model: the model, with all parameters frozen.
        layers: any of ``conv``, ``norm``, ``linear`` and ``head``. The head is the last linear layer; ``linear``
            does not include it.

    Raises:
        UsageError: the model has no such layers.
    """
    require_grad_(select_parameters(model, [kind for kind in layers if kind != "head"]).values())
    if {"linear", "head"} & set(layers):
        find_head(model).requires_grad_("head" in layers)
    if not any(value.requires_grad for value in model.parameters()):
        raise UsageError(
            f"The model has no {' or '.join(layers)} layers to adapt. Use LAW with the setting layers, for example "
            "layers=['linear'] or layers=['linear', 'head'], or the method 'source'."
        )


def require_grad_(parameters: Iterable[nn.Parameter]) -> None:
    """Set ``requires_grad`` to True; adapters call `configure` with all parameters frozen."""
    for value in parameters:
        value.requires_grad_(True)


def module_name(parameter: str) -> str:
    """Return the name of the layer that a parameter belongs to.

    >>> module_name("stages.0.1.conv1.weight")
    'stages.0.1.conv1'
    """
    return parameter.rpartition(".")[0] or parameter


def block_name(parameter: str) -> str:
    """Return the name of the block that a parameter belongs to.

    It ends with the first sequence of numbers in the parameter's name. If there is none, it is the layer.

    >>> block_name("stages.0.1.conv1.weight"), block_name("layer1.0.downsample.1.bias"), block_name("conv.weight")
    ('stages.0.1', 'layer1.0', 'conv')
    """
    parts = module_name(parameter).split(".")
    first = next((index for index, part in enumerate(parts) if part.isdigit()), None)
    if first is None:
        return ".".join(parts)
    return ".".join([*parts[:first], *takewhile(str.isdigit, parts[first:])])
