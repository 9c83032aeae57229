"""Find the class of a method from the class itself, a registered name, or a .py file that defines it."""

import inspect
import os
from pathlib import Path
from types import ModuleType

from driftlaw.base.adapter import Adapter
from driftlaw.base.registry import registered_methods
from driftlaw.errors import UsageError, unknown_name
from driftlaw.files import import_python_file

Method = type[Adapter] | str | os.PathLike[str]


def find_method(method: Method) -> type[Adapter]:
    """Return the class of a method.

    Args:
        method: the class itself, the name of a registered method, the path of a .py file that defines one method, or
            ``FILE.py:CLASS``.

    Raises:
        UsageError: the name, file or class does not exist, or the file cannot be imported or defines several methods.

    >>> import driftlaw.methods
    >>> find_method("law").title
    'LAW'
    """
    if isinstance(method, type):
        return _check_class(method)
    text = os.fspath(method)
    if is_method_file(text):
        file, _, name = text.rpartition(":") if ".py:" in text else (text, "", "")
        if not Path(file).is_file():
            known = ", ".join(sorted(registered_methods()))
            raise UsageError(f"{file} is not a file. Pass a .py file that defines a method, or one of: {known}.")
        return _check_class(_find_class(import_python_file(Path(file)), file, name))
    if text not in registered_methods():
        raise unknown_name("method", text, sorted(registered_methods()))
    return registered_methods()[text]


def is_method_file(text: str) -> bool:
    """Return True if a method is given as a file: ``FILE.py``, ``FILE.py:CLASS`` or a path.

    >>> is_method_file("law"), is_method_file("mine.py"), is_method_file("mine.py:Mine")
    (False, True, True)
    """
    return text.endswith(".py") or ".py:" in text or any(mark in text for mark in (os.sep, os.altsep) if mark)


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


def _find_class(module: ModuleType, path: str, name: str) -> type:
    defined = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Adapter) and value.__module__ == module.__name__
    }
    if name:
        chosen = getattr(module, name, None)
        if not isinstance(chosen, type):
            raise UsageError(f"{path} has no class '{name}'. It defines: {', '.join(defined) or 'no method'}.")
        return chosen
    named = {key: value for key, value in defined.items() if "name" in vars(value)}
    if len(named) > 1:
        choices = " or ".join(f"{path}:{key}" for key in named)
        raise UsageError(f"{path} defines several methods. Choose one of them: {choices}.")
    if not defined:
        raise UsageError(f'{path} does not define a method. Expected `class MyMethod(Adapter, name="my-method")`.')
    return next(iter(named.values()), next(iter(defined.values())))
