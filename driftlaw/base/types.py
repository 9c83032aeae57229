"""What passes between the rooms: Domain, Batch, Stream and StepOutput."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Domain:
    """Where a batch comes from: the corruption's name, its severity (0: clean) and the round of a recurring stream."""

    name: str
    severity: int = 0
    round: int = 0


@dataclass(frozen=True)
class Batch:
    """One arrival of a stream.

    Attributes:
        images: (n, c, h, w) in [0, 1].
        labels: (n,), or None where nobody knows them; only ``run`` ever looks at them.
        domain: where the images come from.
        index: number of the batch in its stream.
        starts_domain: whether it is the first batch of its domain's stretch.
    """

    images: Tensor
    labels: Tensor | None
    domain: Domain
    index: int
    starts_domain: bool


class Stream(ABC):
    """Batches in a fixed order: finite and replayable, two passes give the same bits."""

    num_classes: int

    @abstractmethod
    def __iter__(self) -> Iterator[Batch]: ...

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def recipe(self) -> dict[str, Any]:
        """Return plain data that says how the stream is made, enough to make it again."""

    def iter_from(self, first: int) -> Iterator[Batch]:
        """Iterate from batch ``first`` on; a stream that can skip without work does better than this."""
        return (batch for batch in self if batch.index >= first)


@dataclass(frozen=True)
class StepOutput:
    """Result of a step: detached logits (n, classes), and diagnostics that a report may plot.

    Attributes:
        logits: (n, classes), detached.
        diagnostics: a number or a vector under each name.
    """

    logits: Tensor
    diagnostics: Mapping[str, Tensor | float] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """What the host decided for one step.

    Attributes:
        kind: which operations ``update`` runs; a method uses few different words.
        active: for every trainable parameter tensor, whether it gets a gradient in this step. None: all do.
        augment: makes the second batch; its random numbers are drawn already. None: there is no second batch.
        numbers: host numbers that ``update`` computes with and that change from step to step.
    """

    kind: str = "step"
    active: tuple[bool, ...] | None = None
    augment: Callable[[Tensor], Tensor] | None = None
    numbers: tuple[int, ...] = ()
