"""Checks that settings are tuned on held-out corruptions only, and on streams that are long enough."""

from __future__ import annotations

from collections.abc import Iterable

from driftlaw.base import Stream
from driftlaw.corruptions import list_corruptions
from driftlaw.errors import UsageError

LONG_ENOUGH = 0.8  # times the length of the benchmark's stream


def check_held_out(stream: Stream) -> None:
    """Raise UsageError unless every domain of a stream is a held-out corruption.

    The stream is checked rather than the preset, because only the stream has resolved names such as 'all'.
    """
    recipe = stream.recipe()
    if "corruptions" not in recipe:
        raise UsageError(f"{type(stream).__name__}.recipe() does not list corruptions. Tuning needs to check them.")
    check_corruptions(recipe["corruptions"], "The stream")


def check_corruptions(names: Iterable[str], where: str) -> None:
    """Raise UsageError unless all names are held-out corruptions. ``where`` starts the message."""
    allowed = list_corruptions("held_out")
    others = [name for name in dict.fromkeys(names) if name not in allowed]
    if others:
        is_reported = bool(set(others) & set(list_corruptions()))
        reason = "on which results are reported" if is_reported else "which are not held-out corruptions"
        raise UsageError(
            f"{where} contains {', '.join(others)}, {reason}. Settings may only be tuned on {', '.join(allowed)}. "
            "Remove the corruptions from the preset and from --set, or name some of these."
        )


def warn_short_stream(batches: int, benchmark: int) -> str:
    """Return a warning if a stream is much shorter than the benchmark's, else an empty string.

    >>> warn_short_stream(800, 750)
    ''
    """
    if batches >= LONG_ENOUGH * benchmark:
        return ""
    return (
        f"The stream has {batches} batches, the benchmark's {benchmark}. Settings that adapt fast win short streams "
        "and may lose long ones. Remove --limit, or increase --rounds."
    )
