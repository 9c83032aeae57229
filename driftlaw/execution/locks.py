"""A re-entrant lock that can be copied, pickled and inherited by a forked process."""

import os
import threading
import weakref
from typing import Any

_RLock: Any = type(threading.RLock())
_locks: weakref.WeakSet[Any] = weakref.WeakSet()


class ForkSafeRLock(_RLock):  # type: ignore[misc]
    """A ``threading.RLock`` whose copy or pickle is a new, unlocked lock.

    Acquire and release are those of the base class: a signal between two lines of Python could leave it locked.
    """

    def __init__(self) -> None:
        super().__init__()
        _locks.add(self)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return ForkSafeRLock, ()


def _release_after_fork() -> None:
    """Release every lock in a forked child: the thread that held it does not exist there."""
    for lock in list(_locks):
        lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_after_fork)
