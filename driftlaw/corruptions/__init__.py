"""How a clean image goes bad: fifteen corruptions of the benchmark and four held out, batched and seeded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from driftlaw.corruptions.registry import CORRUPTIONS, Corruption, find_corruption, is_large, list_corruptions

if TYPE_CHECKING:
    from driftlaw.corruptions.pipeline import corrupt

__all__ = ["CORRUPTIONS", "Corruption", "corrupt", "find_corruption", "is_large", "list_corruptions"]


def __getattr__(name: str) -> Any:
    # Names and severities are listed by commands that must answer before torch could be imported.
    if name == "corrupt":
        from driftlaw.corruptions.pipeline import corrupt

        return corrupt
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
