"""Settings from TOML files, presets and ``--set key=value``: typed, immutable, and without unknown keys."""

import operator
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator

from driftlaw.errors import DriftlawError, UsageError, combined_error, suggest, unknown_name
from driftlaw.files import check_regular_file
from driftlaw.paths import PRESETS

ALIASES = {"lr": "learning_rate"}
"""Other names of settings that are accepted wherever settings are given, and the names that records have."""
MAX_SEED = 2**63 - 1
MAX_SHOWN = 80  # characters of an invalid value in a message


class Settings(BaseModel):
    """Base class of all settings: a frozen pydantic model that rejects unknown keys and validates defaults.

    NaN, infinity, and True or False for a number are rejected. ``lr`` is accepted for ``learning_rate``.

    >>> class Config(Settings):
    ...     learning_rate: float = 1e-3
    ...     '''Step size of the optimizer.'''
    >>> Config(learning_rate="0.01").learning_rate
    0.01
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, use_attribute_docstrings=True, allow_inf_nan=False
    )

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

    @model_validator(mode="wrap")
    @classmethod
    def _refuse_bool_as_number(cls, values: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        result = validate(values)
        for name in result.model_fields_set if isinstance(values, Mapping) else ():
            if isinstance(values.get(name), bool) and not isinstance(getattr(result, name), bool):
                raise ValueError(f"{name} = {values[name]}: expected a number")
        return result


class Preset(BaseModel):
    """Tables of a preset. The values in ``stream``, ``step`` and ``methods`` are checked where they are used."""

    model_config = ConfigDict(extra="allow", strict=True)

    title: str = ""
    default_methods: list[str] = []
    stream: dict[str, Any] = {}
    model: dict[str, str | dict[str, Any]] = {}
    step: dict[str, Any] = {}
    methods: dict[str, dict[str, Any]] = {}


S = TypeVar("S", bound=Settings)
M = TypeVar("M", bound=BaseModel)


def parse(kind: type[S], values: Mapping[str, Any], *, where: str) -> S:
    """Validate plain values and return them as an instance of ``kind``.

    Args:
        kind: the settings class.
        values: names and values, from TOML or from keyword arguments.
        where: what the values belong to, for the error message: ``"method law"``.

    Raises:
        UsageError: at least one name or value is invalid. The message lists all problems.
    """
    return validate(kind, dict(values), f"Invalid settings for {where}:")


def validate(kind: type[M], values: Any, heading: str) -> M:
    """Return values as an instance of a pydantic model; raises UsageError with all problems below ``heading``."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        problems = [_describe(kind, problem) for problem in error.errors()]
        raise combined_error(heading, problems) from None


def _describe(kind: type[BaseModel], problem: Any) -> str:
    name = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        valid = list(kind.model_fields)
        return f"Unknown setting '{name}'. {suggest(name, valid)}Valid settings: {', '.join(valid) or 'none'}."
    if problem["type"] == "missing":
        return f"{name} is missing"
    if isinstance(error := problem.get("ctx", {}).get("error"), DriftlawError):  # of nested settings
        return str(error)
    message: str = problem["msg"].removeprefix("Value error, ")
    return f"{name} = {_shown(problem['input'])}: {message}" if name else message


def _shown(value: Any) -> str:
    """Return a value as in code, cut after ``MAX_SHOWN`` characters."""
    try:
        text = repr(value)
    except ValueError:  # an integer of more than 4300 digits
        return "a huge number"
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def check_seed(seed: Any) -> int:
    """Return a seed, which may be a NumPy integer, as an int.

    Raises:
        UsageError: it is not an integer from 0 to 2**63 - 1.
    """
    try:
        value = operator.index(seed)
    except TypeError:
        value = -1
    if isinstance(seed, bool) or not 0 <= value <= MAX_SEED:
        raise UsageError(f"The seed is {_shown(seed)}. Expected an integer from 0 to 2**63 - 1.")
    return value


Seed = Annotated[int, BeforeValidator(check_seed)]
"""Type of a setting that is a seed."""


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        UsageError: the file is missing, unreadable or not valid TOML. For a syntax error the message names the line.
    """
    check_regular_file(path)
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UsageError(f"Settings file {path} does not exist.") from error
    except OSError as error:
        raise UsageError(f"Cannot read settings file {path}: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:  # not only TOMLDecodeError: int() refuses numbers of 5000 digits
        raise UsageError(f"{path} is not valid TOML: {error}.") from error


def list_presets() -> list[str]:
    """Return the names of the presets in the package."""
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def read_preset(name: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the tables of a preset.

    Args:
        name: a name of ``list_presets()``, the path of a .toml file, or several of them joined by ``+``. With
            ``cifar10-c+fast`` the values of ``fast`` replace those of ``cifar10-c``.

    Raises:
        UsageError: there is no such preset, or a table has the wrong type.

    >>> read_preset("cifar10-c+fast")["stream"]["batch_size"]
    200
    """
    if not isinstance(name, str | os.PathLike):
        raise UsageError(f"The preset is of type {type(name).__name__}. Expected a name or the path of a .toml file.")
    name = os.fspath(name)
    if "+" in name and not Path(name).is_file():
        base, _, override = name.rpartition("+")
        return merge(read_preset(base), read_preset(override))
    if name.endswith(".toml"):
        tables = read_toml(Path(name))
        validate(Preset, tables, f"{name} is not a valid preset:")
        return tables
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
        except (ValueError, RecursionError):  # not TOML, or nested too deeply
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
