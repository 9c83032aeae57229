"""What the checks run on: a method with settings, small models, deterministic images, a stream, training data."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from driftlaw.base import Adapter, Batch, BatchStatsSettings, Domain, Plan, StepOutput, Stream
from driftlaw.base.find_method import Method, find_method
from driftlaw.datasets import ArrayImages
from driftlaw.models import build_model
from driftlaw.settings import Settings, parse

CLASSES = 4
BATCH = 8
SIZE = 16


@dataclass(frozen=True)
class MethodUnderTest:
    """A method and its settings, from which the checks create adapters around small models.

    Attributes:
        kind: the method.
        config: its settings.
        dense: whether the models return logits per pixel.
    """

    kind: type[Adapter]
    config: Settings
    dense: bool = False

    @classmethod
    def create(cls, method: Method, settings: Mapping[str, Any] | None = None, *, dense: bool = False) -> Self:
        """Find the method and validate its settings. Without other settings, every batch is an update."""
        kind = find_method(method)
        defaults = {"statistics": "batch"} if issubclass(kind.Config, BatchStatsSettings) else {}
        return cls(kind, parse(kind.Config, defaults | dict(settings or {}), where=f"method {kind.name}"), dense)

    def model(self) -> nn.Module:
        """Return a new small model."""
        return tiny_dense_model() if self.dense else tiny_model()

    def logits_shape(self, count: int) -> tuple[int, ...]:
        """Return the shape of the logits of that model for a number of images."""
        return (count, CLASSES, SIZE // 2, SIZE // 2) if self.dense else (count, CLASSES)

    def adapter(self, model: nn.Module | None = None, *, seed: int = 0, config: Settings | None = None) -> Adapter:
        """Return a new adapter around ``model``, or around a small model if None."""
        train_data = SyntheticDataset() if self.kind.needs_train_data else None
        return self.kind(model or self.model(), config or self.config, seed=seed, train_data=train_data)

    def adapter_after(self, steps: int = 3) -> Adapter:
        """Return a new adapter that has run batches 0, 1, …, steps - 1."""
        adapter = self.adapter()
        run_batches(adapter, range(steps))
        return adapter


def run_batches(adapter: Adapter, indices: range) -> list[Tensor]:
    """Run the adapter on the batches with these indices and return the logits of each."""
    return [adapter(make_images(index)) for index in indices]


def tiny_model() -> nn.Module:
    """Return a WRN-10-1 with the same random weights every time, without changing the global random state.

    Its head is scaled and its running statistics are those of ``make_images``, so that about half of its predictions
    are confident (entropy below 0.4 · ln(classes)), with batch statistics and with running statistics.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = build_model("wrn_10_1", num_classes=CLASSES)
    return _with_statistics(model, model.head)  # type: ignore[arg-type]


def tiny_dense_model() -> nn.Module:
    """Return a model of three convolutions whose logits (n, 4, 8, 8) are at half the resolution of the images.

    Its weights are the same every time. About half of its predictions are confident, as those of ``tiny_model``.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        first, second = nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.Conv2d(8, 8, 3, padding=1, bias=False)
        head = nn.Conv2d(8, CLASSES, 1)
        model = nn.Sequential(first, nn.BatchNorm2d(8), nn.ReLU(), second, nn.BatchNorm2d(8), nn.ReLU(), head)
    return _with_statistics(model, head)


def _with_statistics(model: nn.Module, head: nn.Linear | nn.Conv2d) -> nn.Module:
    norms = {layer: layer.momentum for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)}
    for layer in norms:
        layer.momentum = 1.0  # running statistics are those of the one batch
    with torch.no_grad():
        head.weight *= 16
        model(make_images(99, count=64))
    for layer, momentum in norms.items():
        layer.momentum = momentum
    return model


def model_without_norm_layers() -> nn.Module:
    """Return a small model of two convolutions and a linear head, with the same random weights every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        convolutions = [nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2), nn.ReLU()]
        return nn.Sequential(*convolutions, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, CLASSES))


def make_images(index: int = 0, *, count: int = BATCH, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return the batch with this index: images (count, 3, 16, 16) in [0, 1], each a random color with noise."""
    generator = torch.Generator().manual_seed(index)
    noise, color = (torch.rand(count, 3, size, size, generator=generator, dtype=torch.float64) for size in (SIZE, 1))
    return (0.2 * noise + 0.8 * color).to(dtype)


class OtherMethod(Adapter):
    """A different method, whose state every method under test must reject."""

    name = "driftlaw-testing-other-method"
    title = "Other method"

    @torch.no_grad()
    def update(self, images: Tensor, plan: Plan) -> StepOutput:
        """Return the model's logits."""
        return StepOutput(self.model(images))


class TinyStream(Stream):
    """A stream of three labelled batches: two of one domain, then one of another."""

    num_classes = CLASSES

    def __len__(self) -> int:
        return 3

    def __iter__(self) -> Iterator[Batch]:
        labels = torch.arange(BATCH) % CLASSES
        for index in range(3):
            domain = Domain("first" if index < 2 else "second")
            yield Batch(make_images(index), labels, domain, index, starts_domain=index != 1)

    def recipe(self) -> dict[str, Any]:
        """Return the description of the stream for a record's header."""
        return {"made_up_for": "driftlaw check"}


class SyntheticDataset(ArrayImages):
    """Twelve random labelled images: training data for methods that need some."""

    def __init__(self) -> None:
        labels = np.arange(3 * CLASSES) % CLASSES
        pixels = np.random.default_rng(0).integers(256, size=(len(labels), SIZE, SIZE, 3), dtype=np.uint8)
        names = [f"class {index}" for index in range(CLASSES)]
        super().__init__("synthetic", pixels, labels, names, {"split": "train", "origin": "random pixels"})
