"""In which order domains come: plain functions from names and severities to a list of domains."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from driftlaw.base import Domain

GRADUAL_SEVERITIES = (1, 2, 3, 4, 5, 4, 3, 2, 1)
CLEAN = "clean"
MIXED = "mixed"


def _domain(name: str, severity: int, round_number: int = 0) -> Domain:
    return Domain(name, 0 if name == CLEAN else severity, round_number)


def continual(names: Sequence[str], severity: int, rounds: int) -> list[Domain]:
    """Every corruption once, at one severity, with no sign of a boundary."""
    return [_domain(name, severity) for name in names]


def gradual(names: Sequence[str], severity: int, rounds: int) -> list[Domain]:
    """Every corruption rises from severity 1 to 5 and falls back before the next one comes.

    >>> [(domain.name, domain.severity) for domain in gradual(["fog"], 5, 1)][3:6]
    [('fog', 4), ('fog', 5), ('fog', 4)]
    """
    return [_domain(name, step) for name in names for step in GRADUAL_SEVERITIES]


def recurring(names: Sequence[str], severity: int, rounds: int) -> list[Domain]:
    """The continual schedule, several rounds of it."""
    return [_domain(name, severity, number) for number in range(rounds) for name in names]


SCHEDULES: dict[str, Callable[[Sequence[str], int, int], list[Domain]]] = {
    "continual": continual,
    "gradual": gradual,
    "reset": continual,  # the same stream; it is the adapter that goes back to the source at every shift
    "recurring": recurring,
    "single": continual,
    "mixed": continual,  # its images are then shuffled across domains
}
