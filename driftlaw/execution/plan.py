"""Plan: the random numbers and decisions of one step, made on the host before the step runs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Plan:
    """What the host decided for one step.

    A step whose plan has no ``host`` values and no ``align`` may be recorded and replayed: ``kind`` and ``active`` say
    which operations it runs, and the result of ``augment`` is an input of the recording.

    Attributes:
        kind: which operations ``update`` runs; a method uses few different words.
        active: for every trainable parameter tensor, whether it gets a gradient in this step. None: all do.
        augment: makes the second batch; its random numbers are drawn already. None: there is no second batch.
        host: random numbers, tensors and decisions that change from step to step and that ``update`` uses.
    """

    kind: str = "step"
    active: tuple[bool, ...] | None = None
    augment: Callable[[Tensor], Tensor] | None = None
    host: Any = None

    @property
    def align(self) -> Callable[[Tensor], tuple[Tensor, Tensor]] | None:
        """What ``augment`` has as its attribute ``align``: moves predictions per pixel back; None: nothing was moved.

        It returns logits of the second batch at the pixels of the first, and a mask of the pixels that have one.
        """
        return getattr(self.augment, "align", None)
