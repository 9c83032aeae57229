"""Find the class of a method from the class itself, a registered name, or a .py file that defines one method."""

import importlib.util
import inspect
import os
import sys
import traceback
import zlib
from pathlib import Path
from types import ModuleType

from driftlaw.base import Adapter, registered_methods
from driftlaw.errors import UsageError, unknown_name
from driftlaw.methods import list_methods

Method = type[Adapter] | str | os.PathLike[str]


def find_method(method: Method) -> type[Adapter]:
    """Return the class of a method.

    Args:
        method: the class itself, a name of ``list_methods()``, or the path of a .py file that defines one method.

    Raises:
        UsageError: the name or file does not exist, or the file cannot be imported or does not define one method.

    >>> find_method("law").title
    'LAW'
    """
    if isinstance(method, type):
        return _check_class(method)
    text = os.fspath(method)
    if text.endswith(".py") or any(separator in text for separator in (os.sep, os.altsep) if separator):
        return _check_class(_only_method(_import_file(Path(text)), text))
    if text not in list_methods():
        raise unknown_name("method", text, list_methods())
    return registered_methods()[text]


def _check_class(kind: type) -> type[Adapter]:
    """Return the class if adapters can be created from it; otherwise raise, before every single check fails."""
    if not issubclass(kind, Adapter):
        raise UsageError(f'{kind.__name__} is not a method. Define it as `class {kind.__name__}(Adapter, name="…")`.')
    if not isinstance(getattr(kind, "name", None), str):
        raise UsageError(f'{kind.__name__} has no name. Define it as `class {kind.__name__}(Adapter, name="…")`.')
    if inspect.isabstract(kind):
        missing = ", ".join(sorted(kind.__abstractmethods__))
        raise UsageError(f"{kind.__name__} does not implement: {missing}.")
    return kind


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"{path} is not a file. Pass a .py file or one of: {', '.join(list_methods())}.")
    # A unique name: a file called torch.py must not shadow torch, nor one of two files of the same name the other.
    name = f"driftlaw_checked_{path.stem}_{zlib.crc32(os.fsencode(path.resolve())):08x}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file. The file name must end in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # pydantic resolves annotations through sys.modules
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)  # the file may import its neighbours, as when Python runs it
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # user code may raise anything
        del sys.modules[name]
        raise UsageError(f"{path} cannot be imported: {_describe(error, path)}") from error
    finally:
        sys.path.remove(folder)
    return module


def _describe(error: Exception, path: Path) -> str:
    """Return the error message with the line number in the user's file."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    line = next((frame.lineno for frame in reversed(frames) if Path(frame.filename) == path), None)
    return f"{f'line {line}: ' if line else ''}{type(error).__name__}: {error}"


def _only_method(module: ModuleType, path: str) -> type[Adapter]:
    defined = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Adapter) and value.__module__ == module.__name__
    ]
    named = {value.name: value for value in defined if "name" in vars(value)}
    if len(named) > 1:
        raise UsageError(f"{path} defines several methods ({', '.join(sorted(named))}). Define one method per file.")
    if not defined:
        raise UsageError(f'{path} does not define a method. Expected `class MyMethod(Adapter, name="my-method")`.')
    return next(iter(named.values()), defined[0])
