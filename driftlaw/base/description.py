"""Short descriptions of adapters for ``repr``."""

from typing import Any


def describe_adapter(adapter: Any) -> str:
    """Return one line: method, model, number of adapted parameters, statistics, other settings, steps.

    Settings are listed if they differ from their defaults, because they were given or chosen from the model.
    """
    config, names = adapter.config, set(adapter.trainable_names)
    sizes = {name: value.numel() for name, value in adapter.model.named_parameters()}
    adapted = sum(size for name, size in sizes.items() if name in names)
    parts = [type(adapter.model).__name__, f"{adapted:,} of {sum(sizes.values()):,} parameters adapted"]
    parts += [
        f"{name}={getattr(config, name)!r}"
        for name, field in type(config).model_fields.items()
        if name == "statistics" or getattr(config, name) != field.get_default(call_default_factory=True)
    ]
    return f"{type(adapter).__name__}({', '.join([*parts, f'steps={adapter.steps}'])})"
