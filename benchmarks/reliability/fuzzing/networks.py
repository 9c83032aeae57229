"""Small networks, most of them unusual, and the training data for methods that need it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import driftlaw
from driftlaw.base import Adapter

CLASSES, SIDE, BATCH = 3, 4, 4


def tiny(channels: int = 3, classes: int = CLASSES, norm: Callable[[int], nn.Module] = nn.BatchNorm2d) -> nn.Module:
    """Return a network with two convolutions, a normalisation layer and a linear head; always the same weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(channels, 4, 3, padding=1),
            norm(4),
            nn.ReLU(),
            nn.Conv2d(4, 4, 1),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(4, classes),
        ).eval()


class Output(nn.Module):
    """A tiny network whose output is changed by a function."""

    def __init__(self, change: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.network, self.change = tiny(), change

    def forward(self, images: Tensor) -> Any:
        """Return the changed output."""
        return self.change(self.network(images))


def _with_weights(change: Callable[[nn.Module], Any]) -> nn.Module:
    network = tiny()
    change(network)
    return network


def _set(value: Any) -> Callable[[nn.Module], Any]:
    return lambda network: setattr(network[0], "weight", nn.Parameter(value, requires_grad=False))


NETWORKS: dict[str, Callable[[], Any]] = {
    "tiny": tiny,
    "group norm": lambda: tiny(norm=lambda channels: nn.GroupNorm(2, channels)),
    "instance norm": lambda: tiny(norm=nn.InstanceNorm2d),
    "no running statistics": lambda: tiny(norm=lambda channels: nn.BatchNorm2d(channels, track_running_stats=False)),
    "no affine": lambda: tiny(norm=lambda channels: nn.BatchNorm2d(channels, affine=False)),
    "no norm": lambda: tiny(norm=lambda channels: nn.Identity()),
    "one channel": lambda: tiny(channels=1),
    "one class": lambda: tiny(classes=1),
    "two classes": lambda: tiny(classes=2),
    "no parameters": lambda: nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
    "empty": nn.Sequential,
    "identity": nn.Identity,
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(48, 3)),
    "lazy": lambda: nn.Sequential(nn.LazyConv2d(4, 3), nn.Flatten(), nn.LazyLinear(3)),
    "float64": lambda: tiny().double(),
    "float16": lambda: tiny().half(),
    "bfloat16": lambda: tiny().bfloat16(),
    "half norm": lambda: _with_weights(lambda network: network[0].half()),
    "integer weights": lambda: _with_weights(_set(torch.ones(4, 3, 3, 3, dtype=torch.int64))),
    "complex weights": lambda: _with_weights(_set(torch.ones(4, 3, 3, 3, dtype=torch.complex64))),
    "nan weights": lambda: _with_weights(_set(torch.full((4, 3, 3, 3), float("nan")))),
    "infinite weights": lambda: _with_weights(_set(torch.full((4, 3, 3, 3), float("inf")))),
    "huge weights": lambda: _with_weights(_set(torch.full((4, 3, 3, 3), 3e38))),
    "zero weights": lambda: _with_weights(_set(torch.zeros(4, 3, 3, 3))),
    "no weights": lambda: _with_weights(_set(torch.zeros(0, 3, 3, 3))),
    "nan statistics": lambda: _with_weights(lambda network: network[1].running_mean.fill_(float("nan"))),
    "negative variance": lambda: _with_weights(lambda network: network[1].running_var.fill_(-1)),
    "frozen": lambda: tiny().requires_grad_(False),
    "train mode": lambda: tiny().train(),
    "meta device": lambda: tiny().to("meta"),
    "scripted": lambda: torch.jit.script(tiny()),
    "traced": lambda: torch.jit.trace(tiny(), torch.rand(2, 3, SIDE, SIDE)),
    "weight norm": lambda: _with_weights(lambda network: nn.utils.parametrizations.weight_norm(network[3])),
    "data parallel": lambda: nn.DataParallel(tiny()),
    "shared": lambda: nn.Sequential(*[nn.Conv2d(3, 3, 3, padding=1)] * 2, nn.Flatten(), nn.Linear(48, 3)),
    "inference tensors": lambda: _in_inference_mode(),
    "adapter": lambda: driftlaw.adapt(tiny(), "norm"),
    "class": lambda: nn.Linear,
    "function": lambda: lambda images: images.mean(dim=(2, 3)),
    "none": lambda: None,
    "state dict": lambda: tiny().state_dict(),
    "name": lambda: "wrn_16_1-cifar10",
    "tuple": lambda: Output(lambda logits: (logits, None)),
    "dict": lambda: Output(lambda logits: {"logits": logits}),
    "dict without logits": lambda: Output(lambda logits: {"scores": logits}),
    "empty tuple": lambda: Output(lambda logits: ()),
    "none output": lambda: Output(lambda logits: None),
    "text output": lambda: Output(lambda logits: "logits"),
    "detached": lambda: Output(Tensor.detach),
    "one value": lambda: Output(lambda logits: logits.mean()),
    "one axis": lambda: Output(lambda logits: logits[:, 0]),
    "three axes": lambda: Output(lambda logits: logits[:, None]),
    "dense": lambda: Output(lambda logits: logits[..., None, None].expand(-1, -1, SIDE, SIDE)),
    "half of the batch": lambda: Output(lambda logits: logits[: len(logits) // 2]),
    "no classes": lambda: Output(lambda logits: logits[:, :0]),
    "class indices": lambda: Output(lambda logits: logits.argmax(1)),
    "probabilities": lambda: Output(lambda logits: logits.softmax(1)),
    "nan output": lambda: Output(lambda logits: logits * float("nan")),
    "nan for one image": lambda: Output(lambda logits: logits / (torch.arange(len(logits)) > 0)[:, None]),
    "infinite output": lambda: Output(lambda logits: logits / 0),
    "huge output": lambda: Output(lambda logits: logits * 1e30),
    "complex output": lambda: Output(lambda logits: logits + 0j),
    "integer output": lambda: Output(Tensor.long),
    "sparse output": lambda: Output(Tensor.to_sparse),
    "in place": lambda: Output(lambda logits: logits.add_(1)),
}  # fmt: skip
"""Models to adapt, by name; some are no models."""


def _in_inference_mode() -> nn.Module:
    with torch.inference_mode():
        return tiny()


def train_data() -> TensorDataset:
    """Return twelve images with labels of all classes."""
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(12, 3, SIDE, SIDE, generator=generator)
    return TensorDataset(images, torch.arange(12) % CLASSES)


@functools.cache
def adapter_of(method: str, **settings: Any) -> Adapter:
    """Return an adapter of a tiny network; one per method, settings and process. Callers must restore its state."""
    from driftlaw.methods import registered_methods

    data = train_data() if registered_methods()[method].needs_train_data else None
    return driftlaw.adapt(tiny(), method, train_data=data, **settings)
