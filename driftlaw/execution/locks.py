"""A lock that an adapter can hold and still be copied, pickled and taken along by a forked process."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

_RLock: Any = type(threading.RLock())
_all: weakref.WeakSet[Any] = weakref.WeakSet()


class Lock(_RLock):
    """Lets one thread in at a time, which may come in again; a copy or a pickle of it is a lock of its own.

    Entering and leaving are the base's own: a signal between two lines of Python would leave it locked for good.
    """

    def __init__(self) -> None:
        super().__init__()
        _all.add(self)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return Lock, ()


def _unlock_all() -> None:
    """Open every lock in a process that was just forked: who held it there does not live here."""
    for lock in list(_all):
        lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock_all)
