"""BatchNorm folding for inference: into the convolution before it, or into a fixed scale and shift."""

import copy
import re
from collections import Counter
from typing import cast

from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import parametrize
from torch.nn.utils.fusion import fuse_conv_bn_eval

from driftlaw.errors import UsageError

_PAIRS = {nn.Conv1d: nn.BatchNorm1d, nn.Conv2d: nn.BatchNorm2d, nn.Conv3d: nn.BatchNorm3d}
_PLAIN = (*_PAIRS.values(), nn.SyncBatchNorm)  # exactly these: a subclass may do more than normalize


class ScaleShift(nn.Module):
    """BatchNorm in eval mode as scale · x + shift per channel.

    Args:
        layer: A BatchNorm layer with stored statistics.
    """

    scale: Tensor
    shift: Tensor

    def __init__(self, layer: _BatchNorm) -> None:
        super().__init__()
        assert layer.running_mean is not None
        assert layer.running_var is not None
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
        # Not addcmul: it takes twice as long for one contiguous image, and runtimes fuse these two operations.
        return values * self.scale.view(shape) + self.shift.view(shape)

    def extra_repr(self) -> str:
        """Return the number of channels for ``print(model)``."""
        return str(len(self.scale))


def fold_batch_norm(model: nn.Module) -> nn.Module:
    """Return a frozen copy in eval mode that computes the same with fewer operations.

    A BatchNorm layer that is the only consumer of a convolution is folded into that convolution's weights. Any other
    BatchNorm layer, for example after the sum of a residual block, becomes a ``ScaleShift``. If torch.fx cannot trace
    the model, all BatchNorm layers become ``ScaleShift``. Layers with hooks and subclasses of BatchNorm are kept.

    >>> folded = fold_batch_norm(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)))
    >>> count_batch_norm(folded)
    0

    Args:
        model: Its BatchNorm layers must store statistics; batch statistics cannot be folded.

    Raises:
        UsageError: A BatchNorm layer stores no statistics.
    """
    result: nn.Module = copy.deepcopy(model).eval().requires_grad_(False)
    unfixed = [name for name, layer in result.named_modules() if type(layer) in _PLAIN and layer.running_mean is None]
    if unfixed:
        raise UsageError(
            f"{len(unfixed)} BatchNorm layers store no statistics (the first is {unfixed[0]}). Store them with "
            "driftlaw.components.batch_norm.freeze_batch_stats(model, images)."
        )
    traced = _trace(result)
    if traced is not None:
        _fold_into_convolutions(traced)
        result = traced
    for name, layer in list(result.named_modules()):
        if type(layer) in _PLAIN and not _has_hooks(layer):
            result = _replace_layer(result, name, ScaleShift(cast("_BatchNorm", layer)))
    return result.eval().requires_grad_(False)


def count_batch_norm(model: nn.Module) -> int:
    """Return the number of BatchNorm layers of a model."""
    return sum(isinstance(layer, _BatchNorm) for layer in model.modules())


def _trace(model: nn.Module) -> fx.GraphModule | None:
    """Return the model as a graph of its layers, or None if its code depends on tensor values."""
    try:
        traced = fx.symbolic_trace(model)
    except Exception:  # the model's code runs on placeholders here and may raise anything
        return None
    hooks = {name: value for name, value in vars(model).items() if re.match("_forward_(pre_)?hooks", name)}
    vars(traced).update(hooks)  # tracing covers only the forward method
    for name, value in model.named_buffers(recurse=False):  # which hooks may read
        if name not in traced._buffers:
            traced.register_buffer(name, value, persistent=False)
    return traced


def _fold_into_convolutions(traced: fx.GraphModule) -> None:
    layers = dict(traced.named_modules())
    calls = Counter(node.target for node in traced.graph.nodes if node.op == "call_module")
    for node in list(traced.graph.nodes):
        if node.op != "call_module" or len(node.args) != 1 or node.kwargs:
            continue
        before = node.args[0]
        if not isinstance(before, fx.Node) or before.op != "call_module":
            continue
        if calls[node.target] > 1 or calls[before.target] > 1 or len(before.users) > 1:
            continue
        convolution, norm = layers[str(before.target)], layers[str(node.target)]
        special = any(_has_hooks(layer) or parametrize.is_parametrized(layer) for layer in (convolution, norm))
        if _PAIRS.get(type(convolution)) is type(norm) and not special:
            # In double precision: the product of two rounded numbers would be rounded again.
            fused = fuse_conv_bn_eval(copy.deepcopy(convolution).double(), copy.deepcopy(norm).double())
            _replace_layer(traced, str(before.target), fused.to(cast("nn.Conv2d", convolution).weight.dtype))
            node.replace_all_uses_with(before)
            traced.graph.erase_node(node)
    traced.delete_all_unused_submodules()
    traced.graph.lint()
    traced.recompile()


def _replace_layer(model: nn.Module, name: str, layer: nn.Module) -> nn.Module:
    """Replace the layer called ``name`` and return the model; if the name is empty, the layer is the model."""
    if not name:
        return layer
    parent, _, attribute = name.rpartition(".")
    setattr(model.get_submodule(parent), attribute, layer)
    return model


def _has_hooks(layer: nn.Module) -> bool:
    return bool(layer._forward_hooks or layer._forward_pre_hooks)
