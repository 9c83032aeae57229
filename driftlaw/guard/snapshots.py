"""Snapshots on disk: the last states of an adapter, written atomically."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from driftlaw.errors import DataError, UsageError, warn_user
from driftlaw.files import atomic_path
from driftlaw.torch_files import read_torch_file


class SnapshotFolder:
    """A folder with the last states of one adapter, one file per state, named by its number of steps.

    Args:
        folder: the folder; created with the first state.
        keep: number of states that are kept.
    """

    def __init__(self, folder: str | Path, keep: int) -> None:
        self.folder, self.keep = Path(folder), keep

    def paths(self) -> list[Path]:
        """Return the files, oldest first."""
        return sorted(path for path in self.folder.glob("step-*.pt") if path.stem[5:].isdecimal())

    def has_before(self, steps: int) -> bool:
        """Return True if there is a state with fewer steps than ``steps``."""
        return any(int(path.stem[5:]) < steps for path in self.paths())

    def save(self, steps: int, state: Mapping[str, Any]) -> Path:
        """Write a state and delete those that are too old. A file is complete or does not exist.

        States with more steps are from before a reset, or are damaged, and are deleted as well.
        """
        path = self.folder / f"step-{steps:012d}.pt"
        with atomic_path(path) as temporary, open(temporary, "wb") as file:  # given a path, torch hides a full disk
            torch.save(state, file)
        paths = self.paths()
        current = paths.index(path) + 1
        for other in paths[: max(0, current - self.keep)] + paths[current:]:
            other.unlink(missing_ok=True)
        return path

    def load_into(self, adapter: Any, *, before: int | None = None) -> Path | None:
        """Load the newest state that can be read, and return its file; None if there is none.

        Args:
            adapter: the adapter.
            before: only states with fewer steps than this; all if None.

        Raises:
            UsageError: the state belongs to another model or method.
        """
        for path in reversed(self.paths()):
            if before is not None and int(path.stem[5:]) >= before:
                continue
            try:
                state = read_torch_file(path, next(adapter.parameters()).device)
            except DataError as error:
                warn_user(f"{error} An older state is loaded instead, if there is one.")
                continue
            try:
                adapter.load_state_dict(state)
            except UsageError as error:
                raise UsageError(f"{path} cannot be loaded: {error} Choose another folder for snapshots.") from error
            return path
        return None
