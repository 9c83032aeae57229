"""Schedules: functions from corruption names and a severity to the list of domains of a stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from driftlaw.base import Domain

GRADUAL_SEVERITIES = (1, 2, 3, 4, 5, 4, 3, 2, 1)
CLEAN = "clean"
MIXED = "mixed"


def _domain(name: str, severity: int, round_number: int = 0) -> Domain:
    return Domain(name, 0 if name == CLEAN else severity, round_number)


def continual(names: Sequence[str], severity: int, rounds: int) -> list[Domain]:
    """Return every corruption once, at one severity."""
    return [_domain(name, severity) for name in names]


def gradual(names: Sequence[str], severity: int, rounds: int) -> list[Domain]:
    """Return every corruption with its severity rising from 1 to 5 and falling back to 1.

    >>> [(domain.name, domain.severity) for domain in gradual(["fog"], 5, 1)][3:6]
    [('fog', 4), ('fog', 5), ('fog', 4)]
    """
    return [_domain(name, step) for name in names for step in GRADUAL_SEVERITIES]


def recurring(names: Sequence[str], severity: int, rounds: int) -> list[Domain]:
    """Return the continual schedule, repeated ``rounds`` times."""
    return [_domain(name, severity, number) for number in range(rounds) for name in names]


SCHEDULES: dict[str, Callable[[Sequence[str], int, int], list[Domain]]] = {
    "continual": continual,
    "gradual": gradual,
    "reset": continual,  # the same stream; the evaluator resets the adapter at every domain change
    "recurring": recurring,
    "single": continual,
    "mixed": continual,  # CorruptedStream then shuffles the images across domains
}
