"""Schedules: the order of the domains of a stream."""

from collections.abc import Sequence

from driftlaw.base import Domain

GRADUAL_SEVERITIES = (1, 2, 3, 4, 5, 4, 3, 2, 1)
CLEAN = "clean"
MIXED = "mixed"


def list_domains(schedule: str, names: Sequence[str], severity: int, rounds: int) -> list[Domain]:
    """Return the domains of a stream in order.

    ``gradual``: every corruption with its severity rising from 1 to 5 and falling back to 1. ``recurring``: every
    corruption once, ``rounds`` times. Other schedules: every corruption once. In ``reset`` the evaluator resets the
    adapter at every domain change; in ``mixed`` the stream shuffles the images across domains.

    >>> [(domain.name, domain.severity) for domain in list_domains("gradual", ["fog"], 5, 1)][3:6]
    [('fog', 4), ('fog', 5), ('fog', 4)]
    """
    severities = GRADUAL_SEVERITIES if schedule == "gradual" else (severity,)
    return [
        Domain(name, 0 if name == CLEAN else level, number)
        for number in range(rounds if schedule == "recurring" else 1)
        for name in names
        for level in severities
    ]
