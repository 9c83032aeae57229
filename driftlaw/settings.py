"""Settings from TOML files, presets and ``--set key=value``: typed and frozen; a wrong key names its neighbour."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from driftlaw.errors import UsageError, collected, suggest, unknown
from driftlaw.paths import PRESETS


class Settings(BaseModel):
    """The base of every group of settings: frozen, typed, no unknown keys, defaults checked too."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, use_attribute_docstrings=True)


S = TypeVar("S", bound=Settings)


def parse(kind: type[S], values: Mapping[str, Any], *, where: str) -> S:
    """Return ``kind`` made from plain values; all problems are raised at once, in the words of the user's file.

    Args:
        kind: the settings class.
        values: names and values as TOML or a caller gives them.
        where: what the values belong to, for the message («method law»).
    """
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        problems = [_in_words(kind, problem) for problem in error.errors()]
        raise collected(f"wrong settings for {where}:", problems) from None


def _in_words(kind: type[Settings], problem: Any) -> str:
    name = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        valid = list(kind.model_fields)
        return f"unknown setting «{name}»: {suggest(name, valid)}Valid settings: {', '.join(valid) or 'none'}"
    said = problem["msg"].removeprefix("Value error, ")
    return f"{name} = {problem['input']!r}: {said[0].lower()}{said[1:]}"


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; a syntax error names the file and the line."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UsageError(f"no settings file at {path}") from error
    except OSError as error:
        raise UsageError(f"cannot read the settings file {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from error


def list_presets() -> list[str]:
    """Return the names of the presets that ship with the package."""
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def read_preset(name: str) -> dict[str, Any]:
    """Return the tables of a preset, by its name or by the path of a user's own TOML file.

    ``cifar10-c+fast`` lays the tables of one preset over those of another.

    >>> read_preset("cifar10-c+fast")["stream"]["batch_size"]
    200
    """
    if "+" in name and not Path(name).is_file():
        below, _, above = name.rpartition("+")
        return merge(read_preset(below), read_preset(above))
    if name.endswith(".toml"):
        return read_toml(Path(name))
    if name not in list_presets():
        raise unknown("preset", name, list_presets())
    return read_toml(PRESETS / f"{name}.toml")


def parse_assignments(assignments: Sequence[str]) -> dict[str, Any]:
    """Turn ``["law.tau=0.6", "stream.batch_size=100"]`` into nested tables; values are read as TOML, else as text.

    >>> parse_assignments(["law.tau=0.6", "law.grouping=module"])
    {'law': {'tau': 0.6, 'grouping': 'module'}}
    """
    tables: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        parts = [part.strip() for part in key.split(".")]
        if not equals or not all(parts):
            raise UsageError(f"--set {assignment}: expected key=value, such as law.tau=0.6 or stream.batch_size=100")
        _place(tables, parts, _value(text.strip()), assignment)
    return tables


def _place(tables: dict[str, Any], parts: Sequence[str], value: Any, assignment: str) -> None:
    table = tables
    for part in parts[:-1]:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise UsageError(f"--set {assignment}: «{part}» was given a value before; it cannot hold settings too")
    table[parts[-1]] = value


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` with the values of ``over`` laid on top, table by table.

    >>> merge({"law": {"tau": 1.0, "grouping": "tensor"}}, {"law": {"tau": 0.6}})
    {'law': {'tau': 0.6, 'grouping': 'tensor'}}
    """
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = merge(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged
