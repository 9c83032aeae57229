"""Images and adapters of the reliability benchmarks: the embedded network and images."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import driftlaw
from driftlaw.base import Adapter
from driftlaw.datasets.embedded import read_embedded
from driftlaw.methods import registered_methods
from driftlaw.settings import read_preset

PRESET = "embedded"
NETWORK: str = read_preset(PRESET)["model"]["weights"]


def read_domains(limit: int, corruptions: str = "benchmark") -> list[tuple[Tensor, Tensor]]:
    """Return the images and labels of every domain, at most ``limit`` of each."""
    stream = driftlaw.make_stream(PRESET, limit=limit, batch_size=limit, corruptions=corruptions)
    return [(batch.images, batch.labels) for batch in stream]


def make_adapter(method: str, *, guard: bool, network: str = NETWORK, **settings: Any) -> Adapter:
    """Return an adapter of a network, by default the embedded one, with default settings."""
    model = driftlaw.load_model(network)
    train_data = read_embedded() if registered_methods()[method].needs_train_data else None
    return driftlaw.adapt(model, method, train_data=train_data, guard=guard, **settings)


def predict_all(adapter: Adapter, batches: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Run an adapter over a stream and return for every image whether its prediction was wrong."""
    return torch.cat([adapter(images).argmax(1) != labels for images, labels in batches])
