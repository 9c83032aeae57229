"""Data types that packages exchange: Domain, Batch, Stream and StepOutput."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.utils._pytree import register_pytree_node


@dataclass(frozen=True)
class Domain:
    """Where a batch comes from.

    Attributes:
        name: name of the corruption.
        severity: 1 to 5; 0 for clean images.
        round: round of a recurring stream, from 0.
    """

    name: str
    severity: int = 0
    round: int = 0


@dataclass(frozen=True)
class Batch:
    """One batch of a stream.

    Attributes:
        images: (n, c, h, w) in [0, 1]; from a loader, whatever the adapter accepts.
        labels: (n,), or label maps (n, h, w), or None if unknown; only the evaluation reads them.
        domain: where the images come from.
        index: number of the batch in its stream.
        starts_domain: whether it is the first batch of a domain.
    """

    images: Tensor
    labels: Tensor | None
    domain: Domain
    index: int
    starts_domain: bool

    def __repr__(self) -> str:
        labels = "without labels" if self.labels is None else "with labels"
        return f"<Batch {self.index} of {self.domain.name}: images {tuple(self.images.shape)}, {labels}>"


class Stream(ABC):
    """Batches in a fixed order: two iterations give the same bits.

    Attributes:
        num_classes: number of classes; 0 if unknown or without labels.
        repeatable: False if the stream can be used only once, as a generator. Its runs cannot be resumed.
    """

    num_classes: int
    repeatable: bool = True

    @abstractmethod
    def __iter__(self) -> Iterator[Batch]: ...

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def recipe(self) -> dict[str, Any]:
        """Return a JSON description that identifies the stream, and rebuilds it if possible."""

    def iter_from(self, first: int) -> Iterator[Batch]:
        """Iterate from batch ``first`` on; streams that can skip batches without work override this."""
        return (batch for batch in self if batch.index >= first)


@dataclass(frozen=True)
class StepOutput:
    """Result of a step.

    Attributes:
        logits: (n, classes), or (n, classes, h, w) for a prediction per pixel; detached.
        diagnostics: numbers or vectors that a report may plot, by name.
    """

    logits: Tensor
    diagnostics: Mapping[str, Tensor | float] = field(default_factory=dict)


# Captured steps copy their outputs tensor by tensor.
register_pytree_node(
    StepOutput,
    lambda output: ([output.logits, dict(output.diagnostics)], None),
    lambda children, _: StepOutput(*children),
)
