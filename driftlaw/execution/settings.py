"""Settings of execution: precision, memory format, CUDA graphs, parallel passes, compilation."""

from typing import Any, ClassVar, Literal

from pydantic import SerializerFunctionWrapHandler, model_serializer

from driftlaw.settings import Settings


class ExecutionSettings(Settings):
    """How the steps of a method run. The defaults are safe and fast on every device.

    Settings named in ``omit_if_default`` are not written to records and saved states while they have their default
    value. Records of different versions therefore stay comparable.
    """

    omit_if_default: ClassVar[frozenset[str]] = frozenset(
        {"precision", "channels_last", "capture", "overlap", "compiled"}
    )

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

    @model_serializer(mode="wrap")
    def _omit_defaults(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        defaults = {name: type(self).model_fields[name].default for name in self.omit_if_default}
        return {
            name: value
            for name, value in serialize(self).items()
            if name not in defaults or getattr(self, name) != defaults[name]
        }
