"""Assertions of the conformance checks."""

from collections.abc import Sequence
from typing import Any

from driftlaw.testing.snapshots import differences

MAX_NAMES = 4  # in one message


class CheckFailed(AssertionError):
    """A method does not meet a requirement; the message says what was found."""


def expect(condition: bool, reason: str) -> None:
    """Raise ``CheckFailed(reason)`` unless ``condition`` is true."""
    if not condition:
        raise CheckFailed(reason)


def expect_none(names: Sequence[str], reason: str) -> None:
    """Raise ``CheckFailed(reason)`` if there are names; ``{}`` in the reason stands for the first few of them."""
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    expect(not names, reason.replace("{}", ", ".join(names[:MAX_NAMES]) + more))


def expect_same(one: Any, other: Any, reason: str) -> None:
    """Raise ``CheckFailed(reason)`` unless two nested structures are equal; ``{}`` stands for where they differ."""
    expect_none(differences(one, other), reason)
