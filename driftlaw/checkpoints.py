"""Checkpoints: torch.save and torch.load of work in progress, atomic and without running code; SIGTERM saves too."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from driftlaw.errors import DataError
from driftlaw.files import atomic_path


def save_checkpoint(state: dict[str, Any], path: Path) -> None:
    """Write plain data and tensors; the previous checkpoint is kept until the new one is complete."""
    with atomic_path(path) as temporary:
        torch.save(state, temporary)


def load_checkpoint(path: Path, device: torch.device) -> dict[str, Any]:
    """Read a checkpoint written by ``save_checkpoint``, with its tensors on ``device``.

    Raises:
        DataError: if the file is damaged.
    """
    try:
        state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
    except Exception as error:  # torch raises many types for a file that it cannot read
        reason = str(error).partition("\n")[0]
        raise DataError(f"{path} is damaged ({reason}). Delete it to start from the beginning.") from error
    return state


@contextmanager
def sigterm_raises_exit() -> Iterator[None]:
    """Context manager in which SIGTERM raises SystemExit(143), so that a checkpoint can be written.

    Outside the main thread it does nothing, because Python handles signals there only.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
