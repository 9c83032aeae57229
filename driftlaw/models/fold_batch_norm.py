"""BatchNorm for a network that only infers: folded into the convolution before it, or a fixed scale and shift."""

from __future__ import annotations

import copy
from collections import Counter

from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import parametrize
from torch.nn.utils.fusion import fuse_conv_bn_eval

from driftlaw.errors import UsageError

_PAIRS = {nn.Conv1d: nn.BatchNorm1d, nn.Conv2d: nn.BatchNorm2d, nn.Conv3d: nn.BatchNorm3d}
_PLAIN = (*_PAIRS.values(), nn.SyncBatchNorm)  # exactly these: a class of their own may do more than normalize
_ROOT_HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
)


class ScaleShift(nn.Module):
    """Returns scale · x + shift a channel: a BatchNorm layer in eval mode, its four vectors made two.

    Args:
        layer: the BatchNorm layer; it stores its statistics.
    """

    scale: Tensor
    shift: Tensor

    def __init__(self, layer: _BatchNorm) -> None:
        super().__init__()
        mean, variance = layer.running_mean.double(), layer.running_var.double()
        scale = (variance + layer.eps).rsqrt()
        if layer.weight is not None:
            scale = scale * layer.weight.detach().double()
        shift = -mean * scale
        if layer.bias is not None:
            shift = shift + layer.bias.detach().double()
        self.register_buffer("scale", scale.to(layer.running_mean.dtype))
        self.register_buffer("shift", shift.to(layer.running_mean.dtype))

    def forward(self, values: Tensor) -> Tensor:
        """Map (n, c, …) to the same shape."""
        shape = (1, -1, *(1 for _ in range(values.ndim - 2)))
        # Not addcmul: of one contiguous image it takes twice as long, and runtimes that fuse know these two.
        return values * self.scale.view(shape) + self.shift.view(shape)

    def extra_repr(self) -> str:
        """Return the number of channels for ``print(model)``."""
        return str(len(self.scale))


def fold_batch_norm(model: nn.Module) -> nn.Module:
    """Return a copy in eval mode, nothing of it learning, that answers the same with fewer operations.

    A BatchNorm layer that alone takes what a convolution gives goes into that convolution's weights. Where something
    else comes before it, such as the sum of a residual block, it becomes a ``ScaleShift``. A network that torch.fx
    cannot trace keeps its convolutions as they are. Layers that have hooks, or are of a class of their own, stay.

    Args:
        model: BatchNorm layers in it store statistics; those of the batch at hand cannot be folded.
    """
    own = copy.deepcopy(model).eval().requires_grad_(False)
    unfixed = [name for name, layer in own.named_modules() if _is_plain(layer) and layer.running_mean is None]
    if unfixed:
        raise UsageError(
            f"{len(unfixed)} BatchNorm layers store no statistics, {unfixed[0]} the first: fix them with "
            "driftlaw.components.batch_norm.freeze_batch_stats(model, images)"
        )
    traced = _traced(own)
    if traced is not None:
        _fold_into_convolutions(traced)
        own = traced
    for name, layer in list(own.named_modules()):
        if _is_plain(layer) and not _has_hooks(layer):
            own = _with(own, name, ScaleShift(layer))
    return own.eval().requires_grad_(False)


def count_batch_norm(model: nn.Module) -> int:
    """Return how many BatchNorm layers a network has."""
    return sum(isinstance(layer, _BatchNorm) for layer in model.modules())


def _traced(model: nn.Module) -> fx.GraphModule | None:
    """Return the network as a graph of its layers, None where its code asks what only real images can answer."""
    try:
        traced = fx.symbolic_trace(model)
    except Exception:  # a network's own code runs on placeholders here, and may raise whatever it likes
        return None
    for name in _ROOT_HOOKS:  # tracing looks at the forward method alone
        setattr(traced, name, getattr(model, name))
    return traced


def _fold_into_convolutions(traced: fx.GraphModule) -> None:
    layers = dict(traced.named_modules())
    calls = Counter(node.target for node in traced.graph.nodes if node.op == "call_module")
    for node in list(traced.graph.nodes):
        before = _before(node)
        if before is None or calls[node.target] > 1 or calls[before.target] > 1 or len(before.users) > 1:
            continue
        convolution, norm = layers[str(before.target)], layers[str(node.target)]
        if _PAIRS.get(type(convolution)) is type(norm) and not (_is_special(convolution) or _is_special(norm)):
            _with(traced, str(before.target), _fused(convolution, norm))
            node.replace_all_uses_with(before)
            traced.graph.erase_node(node)
    traced.delete_all_unused_submodules()
    traced.graph.lint()
    traced.recompile()


def _before(node: fx.Node) -> fx.Node | None:
    """Return the layer that a layer takes its only input from."""
    if node.op != "call_module" or len(node.args) != 1 or node.kwargs:
        return None
    given = node.args[0]
    return given if isinstance(given, fx.Node) and given.op == "call_module" else None


def _fused(convolution: nn.Module, norm: _BatchNorm) -> nn.Module:
    # In double: the product of two rounded numbers would be rounded once more.
    dtype = convolution.weight.dtype
    pair = (copy.deepcopy(layer).double() for layer in (convolution, norm))
    return fuse_conv_bn_eval(*pair).to(dtype)


def _with(model: nn.Module, name: str, layer: nn.Module) -> nn.Module:
    """Put a layer where another was; return the network, which is the layer itself where nothing stands around it."""
    if not name:
        return layer
    parent, _, own_name = name.rpartition(".")
    setattr(model.get_submodule(parent), own_name, layer)
    return model


def _is_plain(layer: nn.Module) -> bool:
    return type(layer) in _PLAIN


def _is_special(layer: nn.Module) -> bool:
    return _has_hooks(layer) or parametrize.is_parametrized(layer)


def _has_hooks(layer: nn.Module) -> bool:
    return bool(layer._forward_hooks or layer._forward_pre_hooks)
