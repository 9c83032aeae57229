"""Calls and outputs of the caller's model, kept by its adapter: keyword arguments, type of the output, checks."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from driftlaw.base.model_copy import GIVEN_DTYPE, OUTPUT_EXAMPLE, PROBABILITIES, extract_logits, replace_logits
from driftlaw.errors import UsageError


def split_keywords(model: nn.Module, images: Any, keywords: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the images and the other keyword arguments of a call such as ``adapter(pixel_values=images)``.

    ``labels`` are left out, because an adapter never uses labels.

    Raises:
        UsageError: no keyword argument contains the images, or the model does not accept them as its first argument.
    """
    others = {name: value for name, value in keywords.items() if name != "labels"}
    if images is not None:
        return images, others
    accepted = list(inspect.signature(model.forward).parameters)
    found = [name for name, value in others.items() if isinstance(value, Tensor) and value.ndim == 4]
    name = accepted[0] if accepted[:1] and accepted[0] in others else found[0] if len(found) == 1 else None
    if name is None or name in accepted[1:]:
        raise UsageError(
            f"Found the keyword arguments {', '.join(keywords)}, but no images for the first argument of the model "
            f"({', '.join(accepted[:1]) or 'none'}). Pass them as the first argument. If the model expects them "
            "elsewhere, wrap it in a module whose forward() has the images first."
        )
    return others.pop(name), others


@contextmanager
def model_keywords(adapter: Any, keywords: Mapping[str, Any]) -> Iterator[None]:
    """Context manager in which all copies of the model receive these keyword arguments.

    Steps then run without CUDA graphs, compilation and threads, which would keep the arguments of another call.
    """
    if not keywords:
        yield
        return

    def add(model: nn.Module, arguments: Any, given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return arguments, {**keywords, **given}

    models = [*adapter.children(), adapter._source.model]
    copies = [child for child in models if extract_logits in child._forward_hooks.values()]
    hooks = [child.register_forward_pre_hook(add, prepend=True, with_kwargs=True) for child in copies]
    try:
        with adapter._executor.eager(adapter.model):
            yield
    finally:
        for hook in hooks:
            hook.remove()


def like_model_output(adapter: Any, images: Tensor, logits: Tensor) -> Any:
    """Return logits in the type that the caller's model returns; other tensors in it are None."""
    model: nn.Module = adapter.model
    if OUTPUT_EXAMPLE not in vars(model):  # the model has only run compiled so far
        probe = copy.deepcopy(model).eval()
        with torch.no_grad():
            probe._call_impl(adapter.inputs.to_unit(images, model, check_values=False))
        vars(model)[OUTPUT_EXAMPLE] = vars(probe)[OUTPUT_EXAMPLE]
    return replace_logits(vars(model)[OUTPUT_EXAMPLE], to_given_dtype(logits, model))


def to_given_dtype(logits: Tensor, model: nn.Module) -> Tensor:
    """Return logits in float16 or bfloat16 if the caller's model has weights of that dtype."""
    dtype = getattr(model, GIVEN_DTYPE, None)
    return logits if dtype is None else logits.to(dtype)


def check_probabilities(adapter: Any, logits: Tensor) -> None:
    """Warn if logits are probabilities; called once, because it waits for a GPU."""
    if bool((logits >= 0).all() & ((logits.sum(1) - 1).abs() < 1e-2).all()):
        adapter._warn_once("probabilities", f"The outputs of the model sum to 1, as probabilities do. {PROBABILITIES}")
