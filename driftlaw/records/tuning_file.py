"""Tuning files: the JSON document in which ``driftlaw tune`` stores its trials and the chosen settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from driftlaw.errors import UsageError
from driftlaw.files import atomic_path

TUNING_FORMAT = "driftlaw-tuning-1"


def write_tuning(document: Mapping[str, Any], path: Path) -> None:
    """Write a tuning file atomically."""
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def read_tuning(path: Path) -> dict[str, Any] | None:
    """Return the document of a tuning file; None if the file is missing, damaged or of another kind."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) and document.get("format") == TUNING_FORMAT else None


def check_same_weights(path: Path, sha256: str) -> None:
    """Raise UsageError if a tuning file at ``path`` was made with other weights; other files may be overwritten."""
    model = (read_tuning(path) or {}).get("model", {})
    other = model.get("sha256")
    if other and other != sha256:
        raise UsageError(
            f"{path} contains settings tuned with other weights ({model.get('weights')}, sha256 {other[:8]}; now "
            f"{sha256[:8]}). Choose another --out, or move the file."
        )
