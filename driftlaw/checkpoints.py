"""The state of work under way, on disk: written whole or not at all, read back without running any code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from driftlaw.errors import DataError
from driftlaw.files import atomic_path


def save_checkpoint(state: dict[str, Any], path: Path) -> None:
    """Write plain data and tensors; an older checkpoint stays until the new one is whole."""
    with atomic_path(path) as temporary:
        torch.save(state, temporary)


def load_checkpoint(path: Path, device: torch.device) -> dict[str, Any]:
    """Read what ``save_checkpoint`` wrote, with its tensors on ``device``."""
    try:
        return torch.load(path, map_location=device, weights_only=True)
    except Exception as error:  # torch raises half a dozen kinds for a file it cannot read
        reason = str(error).partition("\n")[0]
        raise DataError(f"{path} is damaged ({reason}): delete it, and the work starts from its beginning") from error
