"""A lock that an adapter can hold and still be copied and pickled."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any


class Lock:
    """Lets one thread in at a time, which may come in again; a copy or a pickle of it is a lock of its own."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[Any, ...]:
        return Lock, ()
