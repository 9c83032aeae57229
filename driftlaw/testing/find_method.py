"""Which method is meant: a class, a registered name, or the one method that a user's file defines."""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
import traceback
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from driftlaw.base import Adapter, registered_methods
from driftlaw.errors import UsageError, unknown
from driftlaw.methods import list_methods

Method = type[Adapter] | str | os.PathLike[str]


def find_method(method: Method) -> type[Adapter]:
    """Return the class of a method.

    Args:
        method: the class itself, a name of ``list_methods()``, or the path of a .py file that defines one method.

    Raises:
        UsageError: there is no such name or file, the file cannot be imported, or it defines no or several methods.
    """
    if isinstance(method, type):
        return _whole(method)
    text = os.fspath(method)
    if _is_path(text):
        return _whole(_only_method(_imported(Path(text)), text))
    if text not in list_methods():
        raise unknown("method", text, list_methods())
    return registered_methods()[text]


def _is_path(text: str) -> bool:
    separators = [separator for separator in (os.sep, os.altsep) if separator]
    return text.endswith(".py") or any(separator in text for separator in separators)


def _whole(kind: type) -> type[Adapter]:
    """Refuse a class of which no adapter can be made, before twenty checks say so one by one."""
    if not issubclass(kind, Adapter):
        raise UsageError(f'{kind.__name__} is no method: expected a class made like `class X(Adapter, name="x")`')
    if not isinstance(getattr(kind, "name", None), str):
        raise UsageError(f'{kind.__name__} has no name: write `class {kind.__name__}(Adapter, name="…")`')
    if inspect.isabstract(kind):
        missing = ", ".join(sorted(kind.__abstractmethods__))
        raise UsageError(f"{kind.__name__} leaves out what a method must write: {missing}")
    return kind


def _imported(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"no file at {path}: give the path of a .py file, or one of: {', '.join(list_methods())}")
    # A name of its own, so that a file called torch.py shadows nothing, nor do two files of the same name.
    name = f"driftlaw_checked_{path.stem}_{zlib.crc32(os.fsencode(path.resolve())):08x}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file: expected a name that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # pydantic looks a class's module up there to read its annotations
    try:
        with _neighbours_importable(path):
            spec.loader.exec_module(module)
    except Exception as error:  # a user's file may raise anything
        del sys.modules[name]
        raise UsageError(f"{path} cannot be imported: {_in_words(error, path)}") from error
    return module


@contextmanager
def _neighbours_importable(path: Path) -> Iterator[None]:
    """Inside, files beside ``path`` can be imported, as they can when Python runs it."""
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def _in_words(error: Exception, path: Path) -> str:
    """Return the error with the line of the user's file it came from."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    line = next((frame.lineno for frame in reversed(frames) if Path(frame.filename) == path), None)
    place = f"line {line}: " if line else ""
    return f"{place}{type(error).__name__}: {error}"


def _only_method(module: ModuleType, path: str) -> type[Adapter]:
    own = [value for value in vars(module).values() if _is_adapter(value) and value.__module__ == module.__name__]
    named = {value.name: value for value in own if "name" in vars(value)}
    if len(named) == 1:
        return next(iter(named.values()))
    if named:
        raise UsageError(f"{path} defines several methods ({', '.join(sorted(named))}): expected one a file")
    if own:
        return _whole(own[0])
    raise UsageError(f'{path} defines no method: expected `class X(Adapter, name="x")`')


def _is_adapter(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Adapter)
