"""Assertions of the conformance checks."""

from collections.abc import Sequence
from typing import Any

from driftlaw.testing.snapshots import differences, list_names


class CheckFailed(AssertionError):
    """A method does not meet a requirement; the message says what was found."""


def expect(condition: bool, reason: str) -> None:
    """Raise ``CheckFailed(reason)`` unless ``condition`` is true."""
    if not condition:
        raise CheckFailed(reason)


def expect_none(names: Sequence[str], reason: str) -> None:
    """Raise ``CheckFailed(reason)`` if there are names; ``{}`` in the reason stands for the first few of them."""
    expect(not names, reason.replace("{}", list_names(names)))


def expect_same(one: Any, other: Any, reason: str) -> None:
    """Raise ``CheckFailed(reason)`` unless two nested structures are equal; ``{}`` stands for where they differ."""
    expect_none(differences(one, other), reason)
