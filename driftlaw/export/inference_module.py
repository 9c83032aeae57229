"""The part of an adapter that produces logits: one of its models, or several combined as the method does."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from driftlaw.base import Adapter
from driftlaw.base.model_copy import unwrap_model
from driftlaw.errors import UsageError


class InferenceModule(nn.Module):
    """Several models combined into logits by a method's ``forward_logits``, without the rest of the adapter.

    Args:
        rule: the method's ``forward_logits``, called with this module in place of the adapter.
        models: copies of the adapter's models, by attribute name.
        config: the method's settings.
    """

    def __init__(self, rule: Callable[[Any, Tensor], Tensor], models: Mapping[str, nn.Module], config: Any) -> None:
        super().__init__()
        self.rule = rule
        self.config = config
        self.info: dict[str, Any] = {}
        for name, model in models.items():
            self.add_module(name, model)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (n, c, h, w) in [0, 1] to logits (n, classes)."""
        return self.rule(self, images)


@torch.no_grad()
def extract_model(adapter: Adapter, images: Tensor) -> nn.Module:
    """Return a copy of the model, or models, from which an adapter computes logits.

    BatchNorm layers keep the modes that they have in the adapter. The adapter is not changed.

    Args:
        adapter: an adapter.
        images: (n, c, h, w) in [0, 1], to find out which of its models are used.

    Raises:
        UsageError: the method computes its logits from more than models.
    """
    rule = type(adapter).forward_logits
    if rule is Adapter.forward_logits:
        return copy.deepcopy(unwrap_model(adapter.model))
    children = {name: copy.deepcopy(child) for name, child in adapter.named_children()}
    try:
        used, logits = _used_models(InferenceModule(rule, children, adapter.config), images)
        module = InferenceModule(rule, {name: children[name] for name in used}, adapter.config)
        module(images)
    except AttributeError as error:
        raise UsageError(
            f"'{adapter.name}' computes its logits from more than its models ({error}), which cannot be exported. "
            "Pass one of its models to driftlaw.export.export_model instead."
        ) from error
    if len(used) == 1 and torch.equal(children[used[0]](images), logits):
        return children[used[0]]
    module.info = {"name": f"{' and '.join(used)} of {adapter.name}"}
    return module


def _used_models(module: InferenceModule, images: Tensor) -> tuple[list[str], Tensor]:
    """Return the names of the models that are called for the logits, and the logits."""
    used: dict[str, None] = {}
    hooks = [
        child.register_forward_pre_hook(lambda *_, name=name: used.setdefault(name))
        for name, child in module.named_children()
    ]
    try:
        logits = module(images)
    finally:
        for hook in hooks:
            hook.remove()
    return list(used), logits
