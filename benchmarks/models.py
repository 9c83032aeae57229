"""What is measured on: networks by name, and batches of images for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from driftlaw.components.features import find_head
from driftlaw.datasets import ArrayImages
from driftlaw.errors import UsageError
from driftlaw.models import build_model, list_models, load_model

SMALL_SIDE = 32
SOURCE_IMAGES = 400  # a step draws a batch of them, however many there are
BATCHES = 4  # made once and shown in turn: nothing may hang on seeing the same batch twice


@dataclass(frozen=True)
class Network:
    """A network to measure on.

    Attributes:
        name: of the catalogue, such as ``wrn_40_2``.
        model: on the CPU; whoever measures takes a copy.
        side: of its images.
        weights: the name of its trained weights; None where it is random.
    """

    name: str
    model: nn.Module
    side: int = SMALL_SIDE
    weights: str | None = None

    @property
    def tensors(self) -> int:
        """How many parameter tensors it has."""
        return len(list(self.model.parameters()))

    @property
    def parameters(self) -> int:
        """How many numbers its parameters hold."""
        return sum(value.numel() for value in self.model.parameters())

    def facts(self) -> dict[str, object]:
        """Return what a record says of it, as plain data."""
        return {
            "model": self.name,
            "weights": self.weights,
            "side": self.side,
            "tensors": self.tensors,
            "parameters": self.parameters,
        }


def make_networks(
    names: Iterable[str], *, weights: Sequence[str] = (), seed: int = 0, side: int | None = None
) -> list[Network]:
    """Return networks by name, random but for those that ``weights`` names.

    Args:
        names: of the catalogue.
        weights: names or paths of trained weights, each of a network among ``names``.
        seed: drives the random ones.
        side: of the images; by default what the catalogue says of the network, 32 for others.
    """
    wanted = list(names)
    trained = {model.info["name"]: (model, str(name)) for name in weights for model in [load_model(name)]}
    strange = [f"{given} ({name})" for name, (_, given) in trained.items() if name not in wanted]
    if strange:
        raise UsageError(
            f"weights of networks that are not measured: {', '.join(strange)}; measured are {', '.join(wanted)}"
        )
    sides = {info.name: info.input_size for info in list_models()}
    networks = []
    for name in wanted:
        own_side = side or sides.get(name, SMALL_SIDE)
        model, given = trained[name] if name in trained else (_random(name, own_side, seed), None)
        networks.append(Network(name, model, own_side, given))
    return networks


def _random(name: str, side: int, seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build_model(name, num_classes=1000 if side > SMALL_SIDE else 10).eval()


def make_batches(
    batch_size: int, side: int, *, seed: int = 0, count: int = BATCHES, pool: Tensor | None = None
) -> list[Tensor]:
    """Return batches (batch_size, 3, side, side) in [0, 1] on the CPU.

    Args:
        batch_size: images a batch.
        side: of an image.
        seed: drives the random images.
        count: how many batches.
        pool: (n, 3, side, side), real images that are taken in turn, again and again; random ones by default.
    """
    if pool is not None and pool.shape[-1] == side:
        return [
            pool[torch.arange(number * batch_size, (number + 1) * batch_size) % len(pool)] for number in range(count)
        ]
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(batch_size, 3, side, side, generator=generator) for _ in range(count)]


def make_source(network: Network, seed: int = 0) -> ArrayImages:
    """Return random images with labels in the place of a network's training data, for methods that keep it at hand."""
    generator, classes = np.random.default_rng(seed), find_head(network.model).out_features
    images = generator.integers(256, size=(SOURCE_IMAGES, network.side, network.side, 3), dtype=np.uint8)
    return ArrayImages("made-up", images, np.arange(SOURCE_IMAGES) % classes, [f"class {n}" for n in range(classes)])
