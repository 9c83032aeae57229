"""Settings of a stream."""

from typing import Any, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator, model_validator

from driftlaw.corruptions import list_corruptions
from driftlaw.corruptions.registry import Encoding
from driftlaw.errors import UsageError, unknown_name
from driftlaw.settings import Settings
from driftlaw.streams.schedules import CLEAN

_SEQUENCE_SCHEDULES = ("continual", "reset", "recurring")


class StreamSettings(Settings):
    """Settings of a corrupted stream.

    >>> StreamSettings(corruptions="fog", severity=3).corruptions
    ('fog',)
    """

    dataset: str = "cifar10-embedded"
    """The clean images: a name from ``driftlaw list datasets``. Or corrupted images only: an archive from ``driftlaw
    data list`` such as ``imagenet-c``, or ``archive:PATH``."""
    schedule: Literal["continual", "gradual", "reset", "mixed", "recurring", "single"] = "continual"
    """Order of the domains."""
    corruptions: tuple[str, ...] | Literal["benchmark", "held_out", "all"] = "benchmark"
    """Corruption names, or a group of them. ``clean`` means uncorrupted images. ``fog+snow`` applies both."""
    severity: int = Field(default=5, ge=1, le=5)
    """Severity of the corruptions, 1 to 5. The gradual schedule ignores it."""
    rounds: int = Field(default=1, ge=1, le=1_000_000)
    """Number of repetitions of the recurring schedule, and of every image in the mixed one."""
    order: Literal["shuffled", "as-is", "dirichlet"] = "shuffled"
    """Order of the images within a domain. It is the same in every domain. If not set, frames of videos (datasets with
    label maps) are in temporal order (``as-is``)."""
    concentration: PositiveFloat = 0.1
    """Parameter of the Dirichlet order. Smaller values make classes arrive in longer runs."""
    batch_size: int = Field(default=200, ge=1, le=1_000_000)
    """Images per batch. The last batch of a domain may be smaller."""
    sequences: tuple[str, ...] | None = None
    """Sequences of a dataset with label maps, in the order of the stream, each as a domain of uncorrupted frames: the
    conditions of ACDC, the videos of CamVid. Schedules are ``continual``, ``reset`` and ``recurring``."""
    size: tuple[PositiveInt, PositiveInt] | None = None
    """Height and width to resize frames and label maps to, for datasets with label maps. Unchanged if omitted."""
    limit: PositiveInt | None = None
    """Maximum number of images per domain; all if omitted."""
    archive: str | None = None
    """Archive to read corrupted images from: its name, or a folder in the CIFAR-10-C or ImageNet-C layout. If omitted,
    images are corrupted on the fly."""
    encoding: Encoding = "auto"
    """Encoding of images that are corrupted on the fly: ``jpeg85``, ``none``, or ``auto``, as in the published files:
    ``jpeg85`` (JPEG of quality 85) if a side is longer than 64 pixels, else ``none``. Records name the one used."""
    seed: NonNegativeInt = 1
    """Seed of the image order."""
    corruption_seed: int = 0
    """Seed of the corruptions. Image i is corrupted in the same way for every order and batch size."""

    @model_validator(mode="before")
    @classmethod
    def _use_clean_sequences(cls, values: Any) -> Any:
        return {"corruptions": [CLEAN], **values} if isinstance(values, dict) and values.get("sequences") else values

    @model_validator(mode="after")
    def _check_sequences(self) -> Self:
        if self.sequences and (self.corruptions != (CLEAN,) or self.schedule not in _SEQUENCE_SCHEDULES):
            raise UsageError(
                f"sequences are uncorrupted domains. Use corruptions=['{CLEAN}'] and one of the schedules "
                f"{', '.join(_SEQUENCE_SCHEDULES)}"
            )
        return self

    @field_validator("corruptions", mode="before")
    @classmethod
    def _accept_single_name(cls, value: Any) -> Any:
        """Accept ``--set stream.corruptions=fog`` as a list with one name."""
        return (value,) if isinstance(value, str) and value not in ("benchmark", "held_out", "all") else value

    @field_validator("corruptions")
    @classmethod
    def _check_names(cls, value: tuple[str, ...] | Literal["benchmark", "held_out", "all"]) -> tuple[str, ...]:
        if isinstance(value, str):
            return tuple(list_corruptions(value))
        names = list_corruptions("all")
        problems = [
            str(unknown_name("corruption", part, [*names, CLEAN] if part == name else names))
            for name in value
            for part in name.split("+")
            if name != CLEAN and part not in names
        ]
        if problems or not value:
            raise UsageError("; ".join(problems) or "expected at least one corruption")
        return value
