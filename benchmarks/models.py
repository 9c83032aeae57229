"""Models and batches of images that benchmarks measure on."""

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
PIXEL_CLASSES = 11  # of a segmentation network with random weights, as in CamVid
TRAIN_IMAGES = 400  # the number does not change the cost of a step
BATCHES = 4  # created once and shown in turn


@dataclass(frozen=True)
class BenchModel:
    """A model to measure on.

    Attributes:
        name: name of the architecture, such as ``wrn_40_2``.
        model: the model on the CPU; targets copy it.
        side: height and width of its images.
        weights: name of its trained weights; None if they are random.
        width: width of its images, if it is not ``side``.
    """

    name: str
    model: nn.Module
    side: int = SMALL_SIDE
    weights: str | None = None
    width: int | None = None

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of its images."""
        return self.side, self.width or self.side

    @property
    def tensors(self) -> int:
        """Number of parameter tensors."""
        return len(list(self.model.parameters()))

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return sum(value.numel() for value in self.model.parameters())

    def info(self) -> dict[str, object]:
        """Return the description for a record."""
        return {
            "model": self.name,
            "weights": self.weights,
            "side": self.side,
            **({} if self.width is None else {"width": self.width}),
            "tensors": self.tensors,
            "parameters": self.parameters,
        }


def make_models(
    names: Iterable[str],
    *,
    weights: Sequence[str] = (),
    seed: int = 0,
    side: int | None = None,
    width: int | None = None,
) -> list[BenchModel]:
    """Return models by name, with random weights unless ``weights`` contains trained ones.

    Args:
        names: names of architectures.
        weights: names or paths of trained weights, each for a model in ``names``.
        seed: seed of random weights.
        side: height and width of the images; if None, the model's own input size, or 32 if that is not known.
        width: width of the images, if it is not ``side``.
    """
    wanted = list(names)
    trained = {model.info["name"]: (model, str(name)) for name in weights for model in [load_model(name)]}
    unused = [f"{given} ({name})" for name, (_, given) in trained.items() if name not in wanted]
    if unused:
        raise UsageError(
            f"These weights belong to models that are not measured: {', '.join(unused)}. "
            f"Measured models: {', '.join(wanted)}."
        )
    sides = {info.name: info.input_size for info in list_models()}
    models = []
    for name in wanted:
        model_side = side or sides.get(name, SMALL_SIDE)
        model, given = trained[name] if name in trained else (_random_model(name, model_side, seed), None)
        models.append(BenchModel(name, model, model_side, given, width))
    return models


def _random_model(name: str, side: int, seed: int) -> nn.Module:
    classes = PIXEL_CLASSES if name.startswith("fpn_") else 1000 if side > SMALL_SIDE else 10
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build_model(name, num_classes=classes).eval()


def make_batches(
    batch_size: int, size: tuple[int, int], *, seed: int = 0, count: int = BATCHES, pool: Tensor | None = None
) -> list[Tensor]:
    """Return batches of shape (batch_size, 3, height, width) with values in [0, 1] on the CPU.

    Args:
        batch_size: images per batch.
        size: height and width of an image.
        seed: seed of the random images.
        count: number of batches.
        pool: real images of shape (n, 3, height, width), used cyclically; random images if None.
    """
    if pool is not None and pool.shape[2:] == size:
        return [
            pool[torch.arange(number * batch_size, (number + 1) * batch_size) % len(pool)] for number in range(count)
        ]
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(batch_size, 3, *size, generator=generator) for _ in range(count)]


def make_train_data(model: BenchModel, seed: int = 0) -> ArrayImages:
    """Return random labelled images in place of a model's training data, for methods that need it."""
    generator, classes = np.random.default_rng(seed), find_head(model.model).out_features
    images = generator.integers(256, size=(TRAIN_IMAGES, *model.image_size, 3), dtype=np.uint8)
    return ArrayImages("synthetic", images, np.arange(TRAIN_IMAGES) % classes, [f"class {n}" for n in range(classes)])
