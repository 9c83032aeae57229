"""What a guard saves with its adapter, and the events that it reports."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, NonNegativeInt
from torch import Tensor

from driftlaw.guard.monitors import Check


@dataclass(frozen=True)
class GuardEvent:
    """An action of the guard.

    Attributes:
        step: number of the step after which it was taken.
        action: ``skip_image``, ``skip_update``, ``shrink_updates``, ``mixed_statistics``, ``batch_statistics``,
            ``restore_snapshot``, ``return_to_source`` or ``grow_updates``.
        reason: why, in words.
    """

    step: int
    action: str
    reason: str


@dataclass(frozen=True)
class GuardState:
    """The attributes of a guard that are saved with its adapter."""

    __pydantic_config__ = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    mode: Literal["adapt", "source"]
    scale: Annotated[float, Field(gt=0, le=1)]
    images: NonNegativeInt
    next_check: NonNegativeInt
    rejected: NonNegativeInt
    alarms: NonNegativeInt
    healthy: NonNegativeInt
    recovery: NonNegativeInt
    checks: list[Check]
    sample: list[Tensor]
    logits: list[Tensor]
    signals: list[Tensor]
    base_skew: float
    good: dict[str, Tensor]
    counts: dict[str, int]
    events: list[GuardEvent]
