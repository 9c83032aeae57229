"""What of an adapter answers: one of its networks, or several and the method's rule; nothing that learns."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from driftlaw.base import Adapter
from driftlaw.base.model_copy import unwrapped
from driftlaw.errors import UsageError


class Answering(nn.Module):
    """Answers with several networks as a method does, and has nothing else of the adapter.

    Args:
        rule: the method's ``answer``, which finds the networks by their names.
        networks: copies of the adapter's own.
        config: the method's settings.
    """

    def __init__(self, rule: Callable[[Any, Tensor], Tensor], networks: Mapping[str, nn.Module], config: Any) -> None:
        super().__init__()
        self.rule = rule
        self.config = config
        for name, network in networks.items():
            self.add_module(name, network)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (n, c, h, w) in [0, 1] to logits (n, classes)."""
        return self.rule(self, images)


@torch.no_grad()
def answering_network(adapter: Adapter, images: Tensor) -> nn.Module:
    """Return a copy of what answers in an adapter, its norm layers in the adapter's own modes.

    Args:
        adapter: it is not touched.
        images: (n, c, h, w) in [0, 1], to see which of its networks are asked.

    Raises:
        UsageError: the method answers with more than networks.
    """
    if type(adapter).forward_logits is Adapter.forward_logits:
        return copy.deepcopy(unwrapped(adapter.model))
    children = {name: copy.deepcopy(child) for name, child in adapter.named_children()}
    try:
        asked, answer = _asked(Answering(type(adapter).forward_logits, children, adapter.config), images)
        own = Answering(type(adapter).forward_logits, {name: children[name] for name in asked}, adapter.config)
        own(images)
    except AttributeError as error:
        raise UsageError(
            f"«{adapter.name}» answers with more than its networks ({error}), and that cannot be exported: give one of "
            "its networks to driftlaw.export.export_network"
        ) from error
    if len(asked) == 1 and torch.equal(children[asked[0]](images), answer):
        return children[asked[0]]
    own.info = {"name": f"{' and '.join(asked)} of {adapter.name}"}
    return own


def _asked(answering: Answering, images: Tensor) -> tuple[list[str], Tensor]:
    """Return the names of the networks that an answer is made of, and the answer."""
    asked: list[str] = []
    children = list(answering.named_children())
    hooks = [child.register_forward_pre_hook(lambda *_, name=name: asked.append(name)) for name, child in children]
    try:
        answer = answering(images)
    finally:
        for hook in hooks:
            hook.remove()
    return list(dict.fromkeys(asked)), answer
