"""The adapter's own copy of the caller's model: unwrapped, frozen, returning plain logits."""

import copy
import dataclasses
from collections.abc import Mapping
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from driftlaw.errors import UsageError, warn_user
from driftlaw.execution.precision import at_least_float32
from driftlaw.models.normalize import normalize_inputs

OUTPUT_EXAMPLE = "_output_example"
"""Attribute of a model copy: what the model returned last, with empty logits; None if it returned plain logits."""

GIVEN_DTYPE = "_given_dtype"
"""Attribute of a model copy: float16 or bfloat16 if the caller's model has that dtype, whose copy is float32."""

DENSE_SIZES = "_dense_sizes"
"""Attribute of a model copy: height and width of the last images, and of their logits per pixel."""

CLASSIFICATION_ONLY = "_classification_only"
"""Attribute of a model copy: why its method cannot use logits per pixel; empty or absent if it can."""

ONE_LOGIT = (
    "The model has one output per image or pixel. Adapters need one logit per class. Wrap a binary model with output z "
    "in a module that returns torch.cat([torch.zeros_like(z), z], dim=1)."
)

PROBABILITIES = "Adapters need logits: for probabilities most losses are nearly constant. Remove the softmax."


def copy_model(model: nn.Module, mean_std: tuple[list[float], list[float]] | None = None) -> nn.Module:
    """Return a deep copy in eval mode that returns plain logits, with all parameters frozen and without gradients.

    Parameters and buffers of 16 bits are float32 in the copy, and logits are float32 or float64.
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
    dtype = next((value.dtype for value in own.parameters()), None)
    vars(own)[GIVEN_DTYPE] = dtype if dtype in (torch.float16, torch.bfloat16) else None
    own._apply(at_least_float32)  # 16-bit weights would round most updates away, and Adam's ε is 0 in float16
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


def find_output_layer(model: nn.Module) -> nn.Linear | nn.Conv2d | nn.ConvTranspose2d | None:
    """Return the layer whose outputs are the classes of a model, or None if the layers do not show it.

    It is the last layer with weights, if that is a linear layer or a 1×1 convolution, or a convolution of any size in a
    model without linear layers. In most networks with logits per pixel it is a convolution.
    """
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear | nn.Conv2d | nn.ConvTranspose2d)]
    last = layers[-1] if layers else None
    if last is None or isinstance(last, nn.Linear) or last.kernel_size == (1, 1):
        return last
    return None if any(isinstance(layer, nn.Linear) for layer in layers) else last


def num_classes(model: nn.Module) -> int | None:
    """Return the number of classes that the layers of a model show, or None if they do not show it.

    >>> num_classes(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(32, 10)))
    10
    """
    layer = find_output_layer(model)
    return layer.out_features if isinstance(layer, nn.Linear) else getattr(layer, "out_channels", None)


def check_head(model: nn.Module, train_data: Any = None) -> None:
    """Warn if the last layer of a model has one output, or is a softmax.

    Raises:
        UsageError: the training data has more classes than the model.
    """
    if num_classes(model) == 1:  # no error yet: it may not be the layer that returns the logits
        warn_user(ONE_LOGIT)
    *_, last = model.modules()
    if isinstance(last, nn.Softmax):
        warn_user(f"The last layer of the model is {last}. {PROBABILITIES}")
    linear = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]  # the last is the head of methods
    classes, given = linear[-1].out_features if linear else num_classes(model), getattr(train_data, "num_classes", None)
    if classes is not None and isinstance(given, Integral) and int(given) > classes:
        raise UsageError(
            f"train_data has {given} classes, but the model has {classes}. Pass the data that the model was trained on."
        )


def extract_logits(model: nn.Module, arguments: Any, output: Any) -> Tensor:
    """Forward hook that returns the logits (n, classes), or (n, classes, h, w), in the output of a model."""
    logits = output if isinstance(output, Tensor) else _find_logits(output)
    images = next((value for value in arguments if isinstance(value, Tensor)), logits)
    if not (
        isinstance(logits, Tensor)
        and logits.layout == torch.strided
        and logits.is_floating_point()
        and logits.ndim in (2, 4)
        and logits.shape[0] == images.shape[0]  # not len(): export keeps the number of images symbolic
        and all(size > 0 for size in logits.shape[1:])
    ):
        raise UsageError(
            f"The model returned {_describe(output)}. Expected logits, floats of shape (n, classes) or (n, classes, "
            "height, width): as a tensor, as the first element of a tuple or list, under the key 'logits' or 'out' of "
            "a dict, or as an attribute .logits. If your model returns something else, wrap it in a module that "
            "returns the logits."
        )
    if logits.shape[1] == 1:
        raise UsageError(ONE_LOGIT)
    if logits.ndim == 4:
        _check_dense(model, images, logits)
    if not torch.compiler.is_compiling():
        vars(model)[OUTPUT_EXAMPLE] = None if logits is output else replace_logits(output, torch.empty(0))
    return at_least_float32(logits)  # under autocast they have too few bits to compare or to sum


def _check_dense(model: nn.Module, images: Tensor, logits: Tensor) -> None:
    """Raise if the method of a model copy cannot use logits per pixel, or if they changed their resolution."""
    if reason := vars(model).get(CLASSIFICATION_ONLY):
        raise UsageError(
            f"The model returned logits per pixel, of shape {tuple(logits.shape)}, but {reason}. Use another method, "
            "such as 'law' or 'tent'."
        )
    if torch.compiler.is_compiling():
        return
    found, (size, expected) = logits.shape[2:], vars(model).get(DENSE_SIZES, (None, None))
    if size == images.shape[2:] and found != expected:
        raise UsageError(
            f"The model returned logits of {tuple(found)} pixels for images of {tuple(size)}, and earlier "
            f"{tuple(expected)}. The resolution of logits must depend on the size of the images alone."
        )
    vars(model)[DENSE_SIZES] = images.shape[2:], found


def _find_logits(output: Any) -> Any:
    """Return what may be the logits of an output that is not a tensor; separate, because older compilers need it."""
    if isinstance(output, Mapping) and ("logits" in output or "out" in output):
        return output["logits" if "logits" in output else "out"]  # 'out': segmentation models of torchvision
    if isinstance(output, list | tuple) and not hasattr(output, "logits"):
        return next((part for part in output if isinstance(part, Tensor)), None)
    return getattr(output, "logits", output)


def replace_logits(output: Any, logits: Tensor) -> Any:
    """Return an output of the same type as ``output`` with other logits. Numbers and text stay, the rest is None.

    >>> replace_logits({"logits": torch.zeros(2), "hidden": torch.zeros(9), "version": 1}, torch.ones(1))
    {'logits': tensor([1.]), 'hidden': None, 'version': 1}
    """

    def replaced(value: Any) -> Any:
        return logits if value is old else value if isinstance(value, bool | int | float | str) else None

    old = _find_logits(output)
    if output is None:
        return logits
    if isinstance(output, list | tuple):
        parts = [replaced(part) for part in output]
        return type(output)(*parts) if hasattr(output, "_fields") else type(output)(parts)
    if dataclasses.is_dataclass(output):  # also the outputs of Hugging Face models, which are dicts as well
        kind: Any = type(output)
        return kind(
            **{each.name: replaced(getattr(output, each.name)) for each in dataclasses.fields(output) if each.init}
        )
    if isinstance(output, Mapping):
        return type(output)({key: replaced(value) for key, value in output.items()})  # type: ignore[call-arg]
    result = copy.copy(output)
    vars(result).update({name: replaced(value) for name, value in vars(output).items()})
    return result


def _describe(output: Any) -> str:
    if isinstance(output, Tensor):
        return f"a tensor of shape {tuple(output.shape)} ({output.dtype}, {output.layout})"
    if isinstance(output, Mapping):
        return f"a {type(output).__name__} with the keys {', '.join(map(str, output)) or 'none'}"
    if isinstance(output, list | tuple):
        return f"a {type(output).__name__} of {', '.join(_describe(part) for part in output[:3]) or 'nothing'}"
    return f"a {type(output).__name__}"
