"""Settings of all methods: input normalisation, precision, memory format, CUDA graphs, parallel passes, compilation."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, SerializerFunctionWrapHandler, field_validator, model_serializer

from driftlaw.guard import GuardSettings
from driftlaw.settings import Settings, parse


def _read_numbers(given: Any) -> str | tuple[float, ...] | None:
    if given is None or isinstance(given, str):
        return given
    try:
        flat = given.flatten() if hasattr(given, "flatten") else given if isinstance(given, list | tuple) else [given]
        return tuple(float(f"{float(value):.7g}") for value in flat)  # 0.485 in float32 is 0.48500001
    except (TypeError, ValueError, RuntimeError, OverflowError):  # RuntimeError: a complex tensor
        raise ValueError("expected one number, one number per channel, or a name such as 'imagenet'") from None


Numbers = Annotated[str | tuple[float, ...] | None, BeforeValidator(_read_numbers)]
"""One number or one per channel, as a sequence, tensor or array; or a name."""


class InputSettings(Settings):
    """What the images look like that an adapter receives. The defaults are images in [0, 1]."""

    mean: Numbers = None
    """For models that expect (x − mean) / std: one number per channel, one for all, or a name such as ``imagenet``."""
    std: Numbers = None
    """Standard deviation: one number per channel, or one for all. Not needed if ``mean`` is a name."""
    inputs: Literal["normalized", "unit"] | None = None
    """With ``mean`` and ``std``, the adapter receives ``normalized`` images (the default) or images in [0, 1]
    (``unit``)."""


class ExecutionSettings(InputSettings):
    """How the steps of a method run. The defaults are safe and fast on every device.

    Settings named in ``omit_if_default`` are not written to records and saved states while they have their default
    value. Records of different versions therefore stay comparable. If a default has changed since, ``value_if_absent``
    holds the earlier one, which is the value that is not written.
    """

    omit_if_default: ClassVar[frozenset[str]] = frozenset(
        {"mean", "std", "inputs", "precision", "channels_last", "capture", "overlap", "compiled", "guard"}
    )
    value_if_absent: ClassVar[Mapping[str, Any]] = {}

    precision: Literal["auto", "float32", "bf16"] = "auto"
    """Precision of the passes through the model. ``bf16`` runs them under autocast. ``auto`` does so on a GPU that
    supports bf16, for float32 models, unless the caller uses autocast. Weights, losses and updates stay float32."""
    channels_last: Literal["auto", "on", "off"] = "auto"
    """Whether weights and images use the channels-last memory format. ``auto`` uses it unless the model is float64 or
    does not support it."""
    capture: Literal["auto", "on", "off"] = "auto"
    """Whether a step runs as one CUDA graph. ``auto`` tries it on a GPU and falls back with a warning."""
    overlap: bool = True
    """Run independent passes of a step in parallel: on a second CUDA stream inside a captured step, or in CPU threads.
    On a CPU, logits may differ in the last digits."""
    compiled: bool = False
    """Compile the model with torch.compile. This takes seconds to a minute for every new batch size. A model that
    cannot be compiled runs eagerly, with a warning."""
    guard: bool | GuardSettings = False
    """Keep bad images out, undo harmful updates, and check the adapter against the source model. True, or settings."""

    @field_validator("guard", mode="before")
    @classmethod
    def _read_guard(cls, value: Any) -> Any:
        return parse(GuardSettings, value, where="the guard") if isinstance(value, Mapping) else value

    @model_serializer(mode="wrap")
    def _omit_defaults(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        defaults = {name: type(self).model_fields[name].default for name in self.omit_if_default}
        defaults.update(self.value_if_absent)
        return {
            name: value
            for name, value in serialize(self).items()
            if name not in defaults or getattr(self, name) != defaults[name]
        }
