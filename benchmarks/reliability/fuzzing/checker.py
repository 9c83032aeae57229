"""Checker: makes a call and judges how it ended."""

from __future__ import annotations

import contextlib
import signal
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import torch
from hypothesis.strategies import SearchStrategy

from driftlaw.base import Adapter
from driftlaw.errors import DriftlawError

PACKAGE = "driftlaw"
MAX_TEXT = 400  # characters of an example that are kept


class Draw(Protocol):
    """Draws a value from a strategy of hypothesis."""

    def __call__(self, strategy: SearchStrategy[Any]) -> Any:
        """Return a value."""


Target = Callable[[Draw, "Checker", Path], None]
"""Draws arguments, writes files into an empty folder, and makes calls through the checker."""


class HangError(BaseException):
    """A call took longer than it may. Not an Exception, so that no handler in driftlaw catches it."""


class FuzzFailureError(AssertionError):
    """A call ended in a way that the property does not allow."""


class Checker:
    """Makes calls and counts how they end.

    A call may return, or raise a DriftlawError. Anything else is a failure: another exception, a call that takes longer
    than ``seconds``, or a refused call that changed the state of its adapter.

    Args:
        seconds: how long a call may take.
        raises: whether a failure raises FuzzFailureError, for tests, or is only counted.
    """

    def __init__(self, *, seconds: float = 10.0, raises: bool = False) -> None:
        self.seconds, self.raises = seconds, raises
        self.calls = self.refused = 0
        self.failures: dict[str, dict[str, Any]] = {}

    def call(
        self,
        function: Callable[..., Any],
        *args: Any,
        adapter: Adapter | None = None,
        allowed: tuple[type[BaseException], ...] = (),
        **kwargs: Any,
    ) -> Any:
        """Make a call and return its result; None if it was refused or failed.

        Args:
            function: what to call.
            *args: its arguments.
            adapter: adapter whose state a refused call must not change.
            allowed: exceptions besides DriftlawError that the caller may see.
            **kwargs: its keyword arguments.
        """
        before = None if adapter is None else copy_state(adapter)
        self.calls += 1
        name = getattr(function, "__qualname__", repr(function))
        try:
            with _time_limit(self.seconds), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return function(*args, **kwargs)
        except (DriftlawError, *allowed) as error:
            self.refused += 1
            if before is not None and not same_state(before, copy_state(adapter)):
                self._fail(f"{name}: a refused call changed the state", error, args, kwargs)
        except HangError as error:
            self._fail(f"{name}: no result after {self.seconds:g} s", error, args, kwargs)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # SystemExit as well
            self._fail(f"{name}: {type(error).__name__}", error, args, kwargs)
        return None

    def expect(self, condition: bool, text: str) -> None:
        """Count a failure if a condition does not hold."""
        if not condition:
            self._fail(text, None, (), {})

    def _fail(self, text: str, error: BaseException | None, args: Any, kwargs: Any) -> None:
        key = f"{text} in {_place(error)}" if error is not None else text
        example = {"arguments": _shorten((args, kwargs)), "message": str(error)[:MAX_TEXT]}
        self.failures.setdefault(key, {"count": 0, **example})["count"] += 1
        if self.raises:
            raise FuzzFailureError(f"{key}: {error}\n{example['arguments']}") from error


def copy_state(adapter: Any) -> dict[str, Any]:
    """Return a copy of everything that an adapter's state_dict holds."""
    return _cloned(dict(adapter.state_dict()))


def same_state(one: Any, other: Any) -> bool:
    """Return True if two states are equal bit for bit."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        if one.shape != other.shape or one.dtype != other.dtype:
            return False
        return torch.equal(*(value.contiguous().flatten().view(torch.uint8) for value in (one, other)))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_state(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same_state, one, other))
    return bool(one == other)


def _cloned(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: _cloned(inner) for key, inner in value.items()}
    return [_cloned(inner) for inner in value] if isinstance(value, list | tuple) else value


def _place(error: BaseException) -> str:
    """Return the innermost function of driftlaw in a traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [frame for frame in frames if f"/{PACKAGE}/" in frame.filename]
    if not inside:
        return "the caller"
    return f"{inside[-1].filename.rpartition(f'/{PACKAGE}/')[2]}:{inside[-1].name}"


def _shorten(value: Any) -> str:
    try:
        return repr(value)[:MAX_TEXT]
    except Exception:  # repr of unusual objects may fail
        return object.__repr__(value)


@contextlib.contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Context manager that raises HangError in the main thread after some seconds."""

    def stop(number: int, frame: object) -> None:
        raise HangError

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
