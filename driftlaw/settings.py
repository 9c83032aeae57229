"""Settings from TOML files, presets and ``--set key=value``: typed, immutable, and without unknown keys."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from driftlaw.errors import UsageError, combined_error, suggest, unknown_name
from driftlaw.paths import PRESETS

ALIASES = {"lr": "learning_rate"}
"""Other names of settings that are accepted wherever settings are given, and the names that records have."""


class Settings(BaseModel):
    """Base class of all settings: a frozen pydantic model that rejects unknown keys and validates defaults.

    ``lr`` is accepted for ``learning_rate``.

    >>> class Config(Settings):
    ...     learning_rate: float = 1e-3
    ...     '''Step size of the optimizer.'''
    >>> Config(learning_rate="0.01").learning_rate
    0.01
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _read_aliases(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        renamed = dict(values)
        for alias, name in ALIASES.items():
            if alias in renamed and name in cls.model_fields and alias not in cls.model_fields:
                if name in renamed:
                    raise ValueError(f"{alias} and {name} are the same setting; pass only one of them")
                renamed[name] = renamed.pop(alias)
        return renamed


S = TypeVar("S", bound=Settings)


def parse(kind: type[S], values: Mapping[str, Any], *, where: str) -> S:
    """Validate plain values and return them as an instance of ``kind``.

    Args:
        kind: the settings class.
        values: names and values, from TOML or from keyword arguments.
        where: what the values belong to, for the error message: ``"method law"``.

    Raises:
        UsageError: at least one name or value is invalid. The message lists all problems.
    """
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        problems = [_describe(kind, problem) for problem in error.errors()]
        raise combined_error(f"Invalid settings for {where}:", problems) from None


def _describe(kind: type[Settings], problem: Any) -> str:
    name = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        valid = list(kind.model_fields)
        return f"Unknown setting '{name}'. {suggest(name, valid)}Valid settings: {', '.join(valid) or 'none'}."
    message: str = problem["msg"].removeprefix("Value error, ")
    return f"{name} = {problem['input']!r}: {message}" if name else message


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        UsageError: the file is missing, unreadable or not valid TOML. For a syntax error the message names the line.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UsageError(f"Settings file {path} does not exist.") from error
    except OSError as error:
        raise UsageError(f"Cannot read settings file {path}: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}.") from error


def list_presets() -> list[str]:
    """Return the names of the presets in the package."""
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def read_preset(name: str) -> dict[str, Any]:
    """Return the tables of a preset.

    Args:
        name: a name of ``list_presets()``, the path of a .toml file, or several of them joined by ``+``. With
            ``cifar10-c+fast`` the values of ``fast`` replace those of ``cifar10-c``.

    >>> read_preset("cifar10-c+fast")["stream"]["batch_size"]
    200
    """
    if "+" in name and not Path(name).is_file():
        base, _, override = name.rpartition("+")
        return merge(read_preset(base), read_preset(override))
    if name.endswith(".toml"):
        return read_toml(Path(name))
    if name not in list_presets():
        raise unknown_name("preset", name, list_presets())
    return read_toml(PRESETS / f"{name}.toml")


def parse_assignments(assignments: Sequence[str]) -> dict[str, Any]:
    """Turn ``--set`` options into nested tables. Values are parsed as TOML; what is not TOML is kept as text.

    >>> parse_assignments(["law.tau=0.6", "law.grouping=module"])
    {'law': {'tau': 0.6, 'grouping': 'module'}}
    """
    tables: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        *parents, name = (part.strip() for part in key.split("."))
        if not equals or not all([*parents, name]):
            raise UsageError(f"--set {assignment}: expected key=value, such as law.tau=0.6 or stream.batch_size=100.")
        table = tables
        for parent in parents:
            table = table.setdefault(parent, {})
            if not isinstance(table, dict):
                raise UsageError(f"--set {assignment}: '{parent}' already has a value and cannot also be a table.")
        try:
            table[name] = tomllib.loads(f"value = {text.strip()}")["value"]
        except tomllib.TOMLDecodeError:
            table[name] = text.strip()
    return tables


def merge(base: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` updated with the values of ``override``. Nested tables are merged key by key.

    A value of ``override`` also replaces one that ``base`` has under the other name of ``ALIASES``.

    >>> merge({"law": {"tau": 1.0, "grouping": "tensor"}}, {"law": {"tau": 0.6}})
    {'law': {'tau': 0.6, 'grouping': 'tensor'}}
    """
    merged = dict(base)
    for alias, name in ALIASES.items():
        if (alias in override) != (name in override):
            merged.pop(name if alias in override else alias, None)
    for key, value in override.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged
