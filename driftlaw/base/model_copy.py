"""The adapter's own copy of the caller's model: unwrapped, frozen, returning plain logits."""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from driftlaw.errors import UsageError
from driftlaw.models.normalize import normalize_inputs


def copy_model(model: nn.Module, mean_std: tuple[list[float], list[float]] | None = None) -> nn.Module:
    """Return a deep copy in eval mode that returns plain logits, with all parameters frozen and without gradients.

    If ``mean_std`` is given, the copy receives images in [0, 1] and normalises them for the model.
    """
    if isinstance(model, torch.jit.ScriptModule):
        raise UsageError(
            "The model is a ScriptModule, whose weights cannot be adapted. Pass the model that it was scripted from."
        )
    try:
        own = copy.deepcopy(unwrap_model(model)).eval().requires_grad_(False)
    except RuntimeError as error:  # of tensors that are results, as the old weight_norm leaves them
        raise UsageError(f"The model cannot be copied, and an adapter works on a copy of it: {error}") from error
    for module in list(own.modules()):  # per-sample gradients do not work through wrapped parts
        for name, child in list(module.named_children()):
            inner = unwrap_model(child)
            if inner is not child:
                setattr(module, name, inner)
    own.zero_grad(set_to_none=True)
    own.register_forward_hook(extract_logits)
    if mean_std is not None:
        normalize_inputs(own, *mean_std)
    return own


def unwrap_model(model: Any) -> nn.Module:
    """Return the network inside DataParallel, DistributedDataParallel or torch.compile wrappers."""
    if not isinstance(model, nn.Module):
        raise UsageError(
            f"Expected a torch.nn.Module that maps images to logits, found {type(model).__name__}. Pass the model."
        )
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        return unwrap_model(model.module)
    compiled = getattr(model, "_orig_mod", None)  # the class of compiled modules takes seconds to import
    return unwrap_model(compiled) if isinstance(compiled, nn.Module) else model


def num_classes(model: nn.Module) -> int | None:
    """Return the number of classes that the layers of a model show, or None if they do not show it.

    It is the number of outputs of the last layer with weights, if that is a linear layer or a 1×1 convolution.

    >>> num_classes(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(32, 10)))
    10
    """
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    head = layers[-1] if layers else None
    if isinstance(head, nn.Linear):
        return head.out_features
    return head.out_channels if head is not None and head.kernel_size == (1, 1) else None


def extract_logits(model: nn.Module, arguments: Any, output: Any) -> Tensor:
    """Forward hook that returns the logits (n, classes) in the output of a model."""
    logits = output if isinstance(output, Tensor) else _find_logits(output)
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        raise UsageError(
            f"The model returned {_describe(output)}. Expected logits of shape (n, classes): as a tensor, as the first "
            "element of a tuple or list, under the key 'logits' of a dict, or as an attribute .logits. If your model "
            "returns something else, wrap it in a module that returns the logits."
        )
    # bf16 logits of a float32 model have 8 significant bits: too few to compare or to sum.
    is_float32 = next((value.dtype for value in model.parameters()), None) == torch.float32
    return logits.float() if logits.dtype == torch.bfloat16 and is_float32 else logits


def _find_logits(output: Any) -> Any:
    """Return what may be the logits of an output that is not a tensor; separate, because older compilers need it."""
    if isinstance(output, Mapping) and "logits" in output:
        return output["logits"]
    if isinstance(output, list | tuple):
        return next((part for part in output if isinstance(part, Tensor)), None)
    return getattr(output, "logits", output)


def _describe(output: Any) -> str:
    if isinstance(output, Tensor):
        return f"a tensor of shape {tuple(output.shape)}"
    if isinstance(output, Mapping):
        return f"a {type(output).__name__} with the keys {', '.join(map(str, output)) or 'none'}"
    if isinstance(output, list | tuple):
        return f"a {type(output).__name__} of {', '.join(_describe(part) for part in output[:3]) or 'nothing'}"
    return f"a {type(output).__name__}"
