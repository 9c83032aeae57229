"""Which parameters learn: chosen by the kind of layer they belong to, always in the order of the network."""

from __future__ import annotations

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
    "linear": (nn.Linear, nn.MultiheadAttention),  # attention keeps its three input projections as tensors of its own
}


def select_parameters(model: nn.Module, kinds: Iterable[str]) -> dict[str, nn.Parameter]:
    """Return the weights and biases of all layers of the given kinds, by name, and nothing below them.

    Args:
        model: the network.
        kinds: keys of ``LAYERS_BY_KIND``.
    """
    layers = tuple(layer for kind in kinds for layer in LAYERS_BY_KIND[kind])
    chosen: dict[str, nn.Parameter] = {}
    for module_name, module in model.named_modules():
        if isinstance(module, layers):
            own = module.named_parameters(recurse=False)
            chosen |= {f"{module_name}.{name}" if module_name else name: value for name, value in own}
    return chosen


def layer_parameters(model: nn.Module, layers: Collection[str]) -> list[nn.Parameter]:
    """Return the parameters of the given kinds of layers, in the order of the model, the head's last.

    Args:
        model: the network.
        layers: any of ``conv``, ``norm``, ``linear`` and ``head``. The head is the last linear layer; ``linear``
            does not include it.
    """
    chosen = list(select_parameters(model, [kind for kind in layers if kind != "head"]).values())
    if not {"linear", "head"} & set(layers):
        return chosen
    head = list(find_head(model).parameters())
    others = [value for value in chosen if all(value is not own for own in head)]
    return others + head if "head" in layers else others


def adapt_layers(model: nn.Module, layers: Collection[str]) -> None:
    """Enable the gradients of the given kinds of layers; raise if the model has none of them.

    Args:
        model: the network, with all parameters frozen.
        layers: see ``layer_parameters``.
    """
    parameters = layer_parameters(model, layers)
    if not parameters:
        raise UsageError(
            f"The model has no {' or '.join(layers)} layers to adapt. Use LAW with the setting layers, for example "
            "layers=['linear'] or layers=['linear', 'head'], or the method 'source'."
        )
    require_grad_(parameters)


def require_grad_(parameters: Iterable[nn.Parameter]) -> None:
    """Turn the gradients of parameters on; an adapter's network starts with all of them off."""
    for value in parameters:
        value.requires_grad_(True)


def module_name(parameter: str) -> str:
    """Return the layer a parameter belongs to.

    >>> module_name("stages.0.1.conv1.weight")
    'stages.0.1.conv1'
    """
    return parameter.rpartition(".")[0] or parameter


def block_name(parameter: str) -> str:
    """Return the block a parameter belongs to: its path to the end of the first run of numbers, else its layer.

    >>> block_name("stages.0.1.conv1.weight"), block_name("layer1.0.downsample.1.bias"), block_name("conv.weight")
    ('stages.0.1', 'layer1.0', 'conv')
    """
    parts = module_name(parameter).split(".")
    first = next((place for place, part in enumerate(parts) if part.isdigit()), None)
    if first is None:
        return ".".join(parts)
    numbers = takewhile(str.isdigit, parts[first:])
    return ".".join([*parts[:first], *numbers])
