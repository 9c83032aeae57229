"""Exceptions and warnings of driftlaw, with the exit code of each, and functions that phrase common errors."""

import difflib
import re
import sys
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

# Control characters but newline and tab, bidirectional controls, line separators, and halves of surrogate pairs.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""Return text with control characters as escape sequences of JSON, so that it cannot control a terminal.

    >>> print(printable("\x1b[31mred"))
    \u001b[31mred
    """
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class DriftlawError(Exception):
    """Base class of all errors that driftlaw raises on purpose.

    The message says what was found, what was expected and what to do. It may quote names from files, so it is made
    ``printable``. The command line prints it and exits with ``exit_code``.
    """

    exit_code = 1

    def __init__(self, message: object = "") -> None:
        super().__init__(printable(str(message)))


class UsageError(DriftlawError, ValueError):
    """The caller passed an unknown name, an invalid setting or unsuitable input."""

    exit_code = 2


class DataError(DriftlawError):
    """A file or download is missing, damaged, or does not match its checksum."""


class RankError(DriftlawError):
    """Another rank of a process group ended, failed or did not take part in time."""


class DriftlawWarning(UserWarning):
    """A problem that does not stop the work. The warning points at the user's line of code that caused it."""


def warn_user(text: str, category: type[Warning] = DriftlawWarning) -> None:
    """Issue a warning for the line of the user's own code that led here.

    Stack frames of driftlaw and of torch are skipped.
    """
    level, frame = 2, sys._getframe().f_back
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("driftlaw", "torch"):
        level, frame = level + 1, frame.f_back
    warnings.warn(printable(text), category, stacklevel=level)


def suggest(name: str, valid: Iterable[str]) -> str:
    """Return a question that names the closest valid name, or an empty string if none is close.

    >>> suggest("fogg", ["fog", "frost"])
    "Did you mean 'fog'? "
    """
    nearest = difflib.get_close_matches(name.lower(), list(valid), n=1)
    return f"Did you mean '{nearest[0]}'? " if nearest else ""


def unknown_name(kind: str, name: str, valid: Sequence[str]) -> UsageError:
    """Return the error for a name that is not in ``valid``. Its message suggests the closest name and lists all.

    >>> print(unknown_name("corruption", "fogg", ["fog", "frost"]))
    Unknown corruption 'fogg'. Did you mean 'fog'? Valid names: fog, frost.
    """
    return UsageError(f"Unknown {kind} '{name}'. {suggest(name, valid)}Valid names: {', '.join(valid)}.")


def combined_error(heading: str, problems: Sequence[str]) -> UsageError:
    r"""Return one error that lists several problems, one per line, so that they can be fixed together.

    >>> print(combined_error("Invalid settings for method law:", ["tau = -1: must be positive"]))
    Invalid settings for method law:
      - tau = -1: must be positive
    """
    return UsageError(heading + "".join(f"\n  - {problem}" for problem in problems))


def describe_validation(error: Any) -> str:
    """Return the problems of a pydantic ``ValidationError`` in one line: the first three, and how many more."""
    problems = error.errors(include_url=False, include_input=False)
    texts = [": ".join(filter(None, [".".join(map(str, each["loc"])), each["msg"]])) for each in problems[:3]]
    return "; ".join(texts) + (f"; and {len(problems) - 3} more" if len(problems) > 3 else "")
