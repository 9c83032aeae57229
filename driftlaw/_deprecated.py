"""Public names and keywords of version 0.1 that still work, with a DeprecationWarning, until version 0.3.

``add_old_names`` gives a package its old names, and ``renamed_keywords`` lets a function accept its old keywords.
CHANGELOG.md has the migration guide.
"""

import functools
import sys
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from driftlaw.errors import warn_user

P = ParamSpec("P")
R = TypeVar("R")

REMOVED_IN = "0.3"

NEW_NAMES = {
    "ArchiveSource": "ArchiveDataset",
    "Cell": "RunSpec",
    "DatasetImages": "TorchDatasetImages",
    "Exported": "ExportResult",
    "ImageSource": "ImageDataset",
    "NORMALISATIONS": "NORMALIZATIONS",
    "Normalise": "Normalize",
    "Table": "ResultTable",
    "Workbench": "RunContext",
    "answering_network": "extract_model",
    "export_network": "export_model",
}
"""Old names of public functions and classes, and the new ones, in whatever package."""


def _message(old: str, new: str) -> str:
    return f"{old} is deprecated and will be removed in driftlaw {REMOVED_IN}. Use {new} instead."


def add_old_names(package: str) -> None:
    """Let a package have the old names of what it contains."""

    def find(name: str) -> Any:
        new = NEW_NAMES.get(name, "")
        if new not in vars(sys.modules[package]):
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        warn_user(_message(f"{package}.{name}", f"{package}.{new}"), DeprecationWarning)
        return vars(sys.modules[package])[new]

    vars(sys.modules[package])["__getattr__"] = find  # not an assignment, after which mypy would accept any name


def renamed_keywords(**names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator for a function that still accepts old keywords, given as ``old="new"``."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for old in names.keys() & kwargs.keys():
                if names[old] in kwargs:
                    raise TypeError(f"{function.__name__}() got both '{names[old]}' and its old name '{old}'")
                warn_user(_message(f"{function.__name__}({old}=…)", f"{names[old]}=…"), DeprecationWarning)
                kwargs[names[old]] = kwargs.pop(old)
            return function(*args, **kwargs)

        return call

    return decorate
