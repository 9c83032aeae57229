"""What can go wrong, in words a user can act on, and the exit code each kind of it gets."""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterable, Sequence


class DriftlawError(Exception):
    """Something failed; the message says what was found, what was expected and what to do."""

    exit_code = 1


class UsageError(DriftlawError, ValueError):
    """The caller asked for something that does not exist or does not fit: an unknown name, a wrong setting or input."""

    exit_code = 2


class DataError(DriftlawError):
    """Data on disk or from the network is missing, damaged or not what its checksum says."""


class DriftlawWarning(UserWarning):
    """Something a user should know of, and the work goes on; it names the line of the user's code that led to it."""


def warn_user(text: str) -> None:
    """Warn of something at the line of the caller's own code that led to it, however deep in here it was found.

    Lines of this package and of torch, which calls our modules, are passed over.
    """
    level, frame = 2, sys._getframe().f_back
    while frame is not None and _is_passed_over(frame.f_globals.get("__name__", "")):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, DriftlawWarning, stacklevel=level)


def _is_passed_over(module: str) -> bool:
    return module.partition(".")[0] in ("driftlaw", "torch")


def suggest(name: str, valid: Iterable[str]) -> str:
    """Return ``did you mean …? `` for the nearest valid name, or an empty string where none is near.

    >>> suggest("fogg", ["fog", "frost"])
    'did you mean «fog»? '
    """
    nearest = difflib.get_close_matches(name.lower(), list(valid), n=1, cutoff=0.4)
    return f"did you mean «{nearest[0]}»? " if nearest else ""


def unknown(kind: str, name: str, valid: Sequence[str]) -> UsageError:
    """Return the error for a name that is not among ``valid``: the nearest one first, then all of them.

    >>> print(unknown("corruption", "fogg", ["fog", "frost"]))
    unknown corruption «fogg»: did you mean «fog»? Valid names: fog, frost
    """
    return UsageError(f"unknown {kind} «{name}»: {suggest(name, valid)}Valid names: {', '.join(valid)}")


def collected(heading: str, problems: Sequence[str]) -> UsageError:
    """Return one error that lists every problem found, so that a user mends them in one go."""
    return UsageError(heading + "".join(f"\n  - {problem}" for problem in problems))
