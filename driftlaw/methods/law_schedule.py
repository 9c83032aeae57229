"""Sparse schedule of LAW: most batches skip the Fisher information, and some of them more than that.

It is not part of the paper. ``fisher_every=1`` is the paper's step.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from driftlaw.base import AugmentationSettings
from driftlaw.components.layer_rates import ParameterGroups
from driftlaw.errors import UsageError

HYSTERESIS = 1.25  # factor on the weight of an active tensor, so that similar tensors do not swap at every choice


class ScheduleSettings(AugmentationSettings):
    """Which batches compute the Fisher information, and what the other batches skip."""

    omit_if_default: ClassVar[frozenset[str]] = AugmentationSettings.omit_if_default | {
        "fisher_every",
        "fisher_settling",
        "skip_share",
        "augment_every",
        "recompute",
    }

    fisher_every: PositiveInt = 1
    """The Fisher information is computed on every n-th batch, after the first ``fisher_settling`` batches."""
    fisher_settling: PositiveInt = 20
    """Number of first batches on which the Fisher information is always computed."""
    skip_share: float = Field(default=0.0, ge=0.0, lt=1.0)
    """On other batches, the tensors with the lowest weights, up to this share of all parameters, get no gradient."""
    augment_every: PositiveInt = 1
    """On other batches, the augmented pass is made on every n-th only; the rest minimise the entropy alone."""
    recompute: bool = False
    """Run the augmented pass twice, so that only one pass is kept in memory for its gradient: less memory, slower."""


def check_settings(settings: Any) -> None:
    """Raise if settings of LAW contradict each other."""
    if settings.compat == "released_2024" and settings.fisher == "per_sample":
        raise UsageError("compat='released_2024' squares a batch gradient. Set fisher='batch', or compat='none'.")
    if settings.fisher_every > 1 and (settings.moments == "kept" or settings.compat == "released_2024"):
        raise UsageError(
            "fisher_every > 1 cannot be combined with moments='kept' or compat='released_2024', because both need the "
            "gradient of every batch. Set moments='fresh' and compat='none', or fisher_every=1."
        )
    unused = [name for name, off in (("skip_share", 0), ("augment_every", 1)) if getattr(settings, name) != off]
    if unused and settings.fisher_every == 1:
        raise UsageError(
            f"{' and '.join(unused)} has no effect with fisher_every=1, which computes the Fisher information on every "
            "batch. Set fisher_every to 2 or more."
        )


def kind_of_step(settings: Any, step: int) -> str:
    """Return ``scored`` (with Fisher information), ``unscored``, or ``entropy`` (without an augmented pass too)."""
    after = step - settings.fisher_settling
    since = after % settings.fisher_every if after >= 0 else 0
    if since == 0:
        return "scored"
    return "entropy" if since % settings.augment_every else "unscored"


def choose_active(
    kind: str,
    skip_share: float,
    active: Tensor,
    groups: ParameterGroups,
    layer_weights: Callable[[], tuple[Tensor, Tensor]],
    cache: dict[str, Any],
) -> tuple[bool, ...] | None:
    """Return which tensors get a gradient in a step; None: all of them. The choice is made after every scored batch.

    Args:
        kind: kind of the step.
        skip_share: share of all parameters that is skipped at most.
        active: (tensors,), bool, the previous choice; updated in place.
        groups: the groups of the tensors, and their sizes.
        layer_weights: returns the weights of the groups first.
        cache: the adapter's host values, emptied when its state is replaced.
    """
    if kind == "scored":
        cache.pop("active", None)
        return None
    if "active" not in cache:
        weights = layer_weights()[0][groups.group_index]
        order = torch.where(active, weights * HYSTERESIS, weights).argsort(stable=True)
        sizes = groups.sizes.double()[order]
        active[order] = sizes.cumsum(0) > skip_share * sizes.sum()
        cache["active"] = tuple(active.tolist())
    chosen: tuple[bool, ...] = cache["active"]
    return chosen


def select(values: Any, active: Sequence[bool] | None) -> Any:
    """Return the entries of a list or of a vector that belong to active tensors; None: all are active."""
    if active is None or all(active):
        return values
    chosen = [value for value, one in zip(values, active, strict=True) if one]
    return torch.stack(chosen) if isinstance(values, Tensor) else chosen
