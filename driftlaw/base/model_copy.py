"""The caller's network: copied, freed of what stands around it, answering with bare logits."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from driftlaw.errors import UsageError


def own_copy(model: nn.Module) -> nn.Module:
    """Return a deep copy in eval mode that answers with bare logits, every parameter frozen and free of gradients."""
    if isinstance(model, torch.jit.ScriptModule):
        raise UsageError("this is a scripted model, whose weights cannot learn here: give the model it was made from")
    try:
        own = copy.deepcopy(unwrapped(model)).eval().requires_grad_(False)
    except RuntimeError as error:  # torch's word for tensors that are results, as old weight_norm leaves them
        raise UsageError(f"this model cannot be copied, and an adapter works on a copy of it: {error}") from error
    _unwrap_parts(own)
    own.zero_grad(set_to_none=True)
    own.register_forward_hook(_bare_logits)
    return own


def _unwrap_parts(model: nn.Module) -> None:
    """Take off, in place, what stands around parts of a network: per-sample gradients do not go through it."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            inner = unwrapped(child)
            if inner is not child:
                setattr(module, name, inner)


def unwrapped(model: Any) -> nn.Module:
    """Return the network inside what DataParallel, DistributedDataParallel and torch.compile put around it."""
    if not isinstance(model, nn.Module):
        raise UsageError(f"expected a torch.nn.Module that maps images to logits, found {type(model).__name__}")
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        return unwrapped(model.module)
    compiled = getattr(model, "_orig_mod", None)  # its class lies in a module that takes seconds to import
    return unwrapped(compiled) if isinstance(compiled, nn.Module) else model


def _bare_logits(model: nn.Module, arguments: Any, answer: Any) -> Tensor:
    """Return the logits (n, classes) in what a network answered."""
    logits = answer if isinstance(answer, Tensor) else _logits_within(answer)
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        raise UsageError(
            f"the model answered {_told(answer)}: expected logits (n, classes), alone, first in a tuple or list, under "
            "«logits» in a dict, or as .logits; wrap the model in a module that returns them"
        )
    # The answer of a float32 network that autocast gave in bf16 has 8 bits: too few to be told apart, or added up.
    return logits.float() if logits.dtype == torch.bfloat16 and _is_float32(model) else logits


def _logits_within(answer: Any) -> Any:
    """Return what may be the logits of an answer that is more than them; apart, as older compilers balk at it."""
    if isinstance(answer, Mapping) and "logits" in answer:
        return answer["logits"]
    if isinstance(answer, list | tuple):
        return next((part for part in answer if isinstance(part, Tensor)), None)
    return getattr(answer, "logits", answer)


def _is_float32(model: nn.Module) -> bool:
    return next((value.dtype for value in model.parameters()), None) == torch.float32


def _told(answer: Any) -> str:
    if isinstance(answer, Tensor):
        return f"a tensor of shape {tuple(answer.shape)}"
    if isinstance(answer, Mapping):
        return f"a {type(answer).__name__} with the keys {', '.join(map(str, answer)) or 'none'}"
    if isinstance(answer, list | tuple):
        return f"a {type(answer).__name__} of {', '.join(_told(part) for part in answer[:3]) or 'nothing'}"
    return f"a {type(answer).__name__}"
