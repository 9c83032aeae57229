"""Checkpoints of work in progress: atomic writes, safe reads, and interrupts that wait until one is written."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from driftlaw.errors import DataError
from driftlaw.files import atomic_path
from driftlaw.torch_files import read_torch_file


def save_checkpoint(state: dict[str, Any], path: Path) -> None:
    """Write plain data and tensors; the previous checkpoint is kept until the new one is complete."""
    with atomic_path(path) as temporary, open(temporary, "wb") as file:  # given a path, torch hides a full disk
        torch.save(state, file)


def load_checkpoint(path: Path, device: torch.device) -> dict[str, Any]:
    """Read a checkpoint written by ``save_checkpoint``, with its tensors on ``device``.

    Raises:
        DataError: if the file is damaged or not a checkpoint.
    """
    try:
        state = read_torch_file(path, device)
        if not isinstance(state, dict):
            raise DataError(f"{path} contains a {type(state).__name__}, expected a dict.")
    except DataError as error:
        raise DataError(f"{error} Delete it to start from the beginning.") from None
    return state


@contextmanager
def deferred_interrupts() -> Iterator[Callable[[], BaseException | None]]:
    """Context manager that defers Ctrl-C and SIGTERM, so that the current step ends and a checkpoint is written.

    Yields:
        A function that returns the exception to raise, or None if no signal has arrived: KeyboardInterrupt for
        Ctrl-C, SystemExit(143) for SIGTERM. If the block ends without raising it, it is raised then. A second signal
        raises at once. Signals are handled in the main thread only, because Python does not allow it elsewhere.
    """
    pending: list[BaseException] = []

    def handle(number: int, frame: FrameType | None) -> None:
        error = KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)
        if pending:
            raise error
        pending.append(error)

    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: pending[0] if pending else None
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    if pending:
        raise pending[0]
