"""Tuning files: a trial as the file stores it, writing, and a check before one is overwritten."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driftlaw.errors import DataError, UsageError
from driftlaw.files import atomic_path
from driftlaw.records.tuning_file import TUNING_FORMAT, read_tuning


@dataclass(frozen=True)
class Trial:
    """Result of one combination of settings on the held-out corruptions, as mean over seeds.

    Attributes:
        values: values of the tuned settings.
        mean_error: error in per cent.
        error_by_domain: error in per cent for each corruption.
        records: file names of the records.
        errors: error in per cent for each batch, one row per seed. Not stored in the file.
    """

    values: dict[str, Any]
    mean_error: float
    error_by_domain: dict[str, float]
    records: tuple[str, ...]
    errors: tuple[tuple[float, ...], ...] = ()

    def to_json(self, *, tied: bool) -> dict[str, Any]:
        """Return the trial as the file stores it. ``tied``: not significantly worse than the best trial."""
        return {
            "tried": self.values,
            "mean_error": self.mean_error,
            "error_by_domain": self.error_by_domain,
            "records": list(self.records),
            "tied": tied,
        }


def write_tuning(document: Mapping[str, Any], path: Path) -> None:
    """Write a tuning file atomically."""
    text = json.dumps({"format": TUNING_FORMAT, **document}, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def check_same_weights(path: Path, sha256: str) -> None:
    """Raise UsageError if a tuning file at ``path`` was made with other weights. Other files may be overwritten."""
    try:
        model = read_tuning(path)["model"]
    except DataError:
        return
    other = model.get("sha256")
    if other and other != sha256:
        raise UsageError(
            f"{path} contains settings tuned with other weights ({model.get('weights')}, sha256 {str(other)[:8]}; "
            f"now {sha256[:8]}). Choose another --out, or move the file."
        )
