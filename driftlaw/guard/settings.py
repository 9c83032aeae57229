"""Settings of the guard."""

from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from driftlaw.settings import Settings


class GuardSettings(Settings):
    """Settings of the guard. Those of checks were chosen on the held-out corruptions, with the embedded network.

    >>> import driftlaw
    >>> model = driftlaw.load_model("wrn_16_1-cifar10")
    >>> driftlaw.adapt(model, guard=GuardSettings(bad_images="raise")).guard.scale
    1.0
    """

    bad_images: Literal["nan", "raise"] = "nan"
    """What images get that contain NaN or infinite pixels, or pixels out of range: ``nan`` logits, or an error."""
    max_update: float = Field(default=0.05, gt=0)
    """Largest norm of an update, relative to the norm of the updated parameters. Larger updates are undone."""
    sample: int = Field(default=64, ge=8)
    """Number of recent images on which a check compares the adapter with the source model."""
    check_images: PositiveInt = 4800
    """Number of images between two checks. Checks are more frequent at the start, and after a check that failed."""
    max_skew: float = Field(default=0.25, gt=0)
    """Skew of recent batches above which the source model predicts; see ``driftlaw.guard.monitors.skew``."""
    min_agreement: float = Field(default=0.85, ge=0, le=1)
    """Lowest share of the confident predictions of the reference model that the adapter must share."""
    min_classes: float = Field(default=0.7, ge=0, le=1)
    """Lowest effective number of predicted classes, relative to that of the reference model."""
    shrink: float = Field(default=0.25, gt=0, lt=1)
    """Factor of all later updates after an alarm."""
    recovery: PositiveInt = 20
    """Number of checks without an alarm after which a factor below 1 is doubled. It doubles with every alarm."""
    snapshots: str | None = None
    """Folder in which states are saved. A new adapter continues from the newest one."""
    snapshot_steps: PositiveInt = 500
    """Number of steps between two saved states."""
    keep: PositiveInt = 3
    """Number of saved states that are kept."""
    canary_steps: NonNegativeInt = 50
    """Number of steps between two scores of the labelled images of ``Guard.set_canary``."""
    canary_margin: float = Field(default=0.1, ge=0, le=1)
    """By how much the error on these images may exceed that of the source model."""
