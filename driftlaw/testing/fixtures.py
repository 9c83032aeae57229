"""What a check works on: a method with its settings, a tiny network, and images that are the same every time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from driftlaw.base import Adapter, Batch, Domain, Plan, StepOutput, Stream
from driftlaw.models import build_model
from driftlaw.settings import Settings, parse
from driftlaw.testing.find_method import Method, find_method

CLASSES = 4
BATCH = 8
SIZE = 16


class CheckFailed(AssertionError):
    """A promise that a method does not keep; the message says what was found."""


def expect(condition: bool, reason: str) -> None:
    """Fail the check with ``reason`` unless ``condition`` holds."""
    if not condition:
        raise CheckFailed(reason)


@dataclass(frozen=True)
class Subject:
    """A method under check: makes adapters around tiny networks."""

    kind: type[Adapter]
    config: Settings

    @classmethod
    def of(cls, method: Method, settings: Mapping[str, Any] | None = None) -> Subject:
        """Return the subject for a class, name or file, or raise where the settings do not fit it."""
        kind = find_method(method)
        return cls(kind, parse(kind.Config, settings or {}, where=f"method {kind.name}"))

    def adapter(self, model: nn.Module | None = None, *, seed: int = 0) -> Adapter:
        """Return a new adapter, around a tiny wide resnet unless told."""
        source = SyntheticDataset() if self.kind.needs_train_data else None
        return self.kind(tiny_model() if model is None else model, self.config, seed=seed, train_data=source)

    def stepped(self, steps: int = 3) -> Adapter:
        """Return a new adapter that has answered some batches."""
        adapter = self.adapter()
        take_steps(adapter, range(steps))
        return adapter


def take_steps(adapter: Adapter, numbers: range) -> list[Tensor]:
    """Return the adapter's answers to the batches of these numbers."""
    return [adapter(make_images(number)) for number in numbers]


def tiny_model() -> nn.Module:
    """Return the same untrained WRN-10-1 every time; the global random state is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build_model("wrn_10_1", num_classes=CLASSES)


def model_without_norm_layers() -> nn.Module:
    """Return a small network of two convolutions and a linear head."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, stride=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, CLASSES),
        )


def make_images(number: int = 0, *, count: int = BATCH, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return batch ``number``: images (count, 3, 16, 16) in [0, 1]."""
    generator = torch.Generator().manual_seed(number)
    return torch.rand(count, 3, SIZE, SIZE, generator=generator, dtype=torch.float64).to(dtype)


class Still(Adapter):
    """Another method, whose state is nobody else's."""

    name = "driftlaw-checks-another-method"
    title = "Another method"

    @torch.no_grad()
    def update(self, images: Tensor, plan: Plan) -> StepOutput:
        """Answer the batch."""
        return StepOutput(self.model(images))


class TinyStream(Stream):
    """Three labelled batches of two domains."""

    num_classes = CLASSES

    def __len__(self) -> int:
        return 3

    def __iter__(self) -> Iterator[Batch]:
        labels = torch.arange(BATCH) % CLASSES
        for index in range(3):
            domain = Domain("first" if index < 2 else "second")
            yield Batch(make_images(index), labels, domain, index, starts_domain=index != 1)

    def recipe(self) -> dict[str, Any]:
        """Return what a record says of the stream."""
        return {"made_up_for": "driftlaw check"}


class SyntheticDataset:
    """Training data for methods that ask for some: a dozen labelled images with the face of a dataset."""

    name = "made-up"
    num_classes = CLASSES
    image_shape = (SIZE, SIZE)

    def __init__(self) -> None:
        self.class_names = [f"class {number}" for number in range(CLASSES)]
        self.labels = np.arange(3 * CLASSES, dtype=np.int64) % CLASSES
        self._pixels = np.random.default_rng(0).integers(256, size=(len(self.labels), SIZE, SIZE, 3), dtype=np.uint8)

    def __len__(self) -> int:
        return len(self.labels)

    def images(self, indices: Any) -> np.ndarray:
        """Return the images at ``indices`` as uint8 (k, h, w, 3)."""
        return self._pixels[np.asarray(indices, dtype=np.int64)]

    def facts(self) -> dict[str, Any]:
        """Return plain data for a record's header."""
        return {"name": self.name, "split": "train", "count": len(self), "origin": "random pixels"}
